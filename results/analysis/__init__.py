"""Analyses of scores: main effects, best cells and their uncertainty, claims of papers, comparisons of two grids."""
