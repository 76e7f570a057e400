"""`python -m goalgrid`."""

from goalgrid.app import main

if __name__ == "__main__":
    main()
