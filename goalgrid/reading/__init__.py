"""What stands there: the grids by name, their trials and states on the disk, and the data at hand."""
