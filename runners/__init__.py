"""How trials run: the shared trainer, checkpoints, the two drivers (Ray Tune, in-process), MLflow, the live matrix."""
