"""What a run would do, without doing it: trials to train and why, work and costs, printed tables that it fills."""
