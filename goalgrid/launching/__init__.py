"""Doing it: grids trained together or one after the other, by Ray or here, or by a batch script for Slurm."""
