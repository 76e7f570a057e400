"""Statistics as functions of arrays, independent of grids: intervals, tests, power, and analysis of variance."""
