"""Everything that affects a trial's results: the trainer, its inputs, schedules, checkpoints and process group."""
