"""`python -m goalgrid`."""

from goalgrid.app import main

main()
