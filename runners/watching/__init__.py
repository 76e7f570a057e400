"""Monitoring of a running launch: the live view, experiment trackers, and notifications."""
