"""The table that layouts make and renderers read, and its averages."""
