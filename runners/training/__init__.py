"""Everything that decides a trial's numbers."""
