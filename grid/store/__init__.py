"""What stands on the disk: the runs folder, its files, attempts at trials, saved grids and measurements."""
