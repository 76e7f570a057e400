"""What a run would do: which trials it would train and why, what they cost, and which printed tables they fill."""
