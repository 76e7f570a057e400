"""Faults on purpose: what `goalgrid selftest` does to a small grid, and what it checks."""
