"""The lifecycle of one trial: its attempts and their lease, its events, retries, and its end."""
