"""The runs folder on the disk: its files, attempts at trials, saved grids and measurements."""
