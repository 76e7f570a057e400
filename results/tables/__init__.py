"""The table that layouts make and renderers read, its averages, and the papers' notation."""
