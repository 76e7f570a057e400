"""Checks on demand: what `goalgrid selftest` does to a small grid, and what `goalgrid check` checks."""
