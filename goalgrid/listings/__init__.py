"""What is there before any grid ran: grids, recipes, objectives, settings, data sets, rows of the papers' tables."""
