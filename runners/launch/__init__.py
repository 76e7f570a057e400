"""The life of one command: its jobs, the drivers that run them, and what watches over both."""
