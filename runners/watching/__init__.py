"""What shows a launch while it runs: the live view, trackers, and a command of the user."""
