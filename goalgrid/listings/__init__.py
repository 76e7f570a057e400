"""List what is available before any grid has run: grids, recipes, objectives, settings, data sets, papers' tables."""
