"""Launch the training of one or several grids: with Ray, in this process, or by a Slurm batch script."""
