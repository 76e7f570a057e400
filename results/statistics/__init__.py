"""Statistics as functions of arrays: intervals, tests, power, and the analysis of variance. It knows no grid."""
