"""What shows a launch while it runs: the live matrix, and MLflow's mirror."""
