"""Plan a run without training: which trials would be trained and why, and the work, time and cost."""
