"""All that decides a trial's numbers: the trainer, what it reads, its schedules, checkpoints and process group."""
