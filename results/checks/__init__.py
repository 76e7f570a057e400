"""Whether results are still the same: a table and its records, two runs of a grid, a trial's files and its record."""
