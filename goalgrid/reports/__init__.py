"""What came out of a grid: its tables, effects, comparisons, claims and report, from the records."""
