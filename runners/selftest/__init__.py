"""Checks on demand: the crash test of `goalgrid selftest`, and the component checks of `goalgrid check`."""
