"""The table that layouts make and renderers read."""
