"""The life of one trial: its attempts and their lock, its events, whether it is tried again, and how it ends."""
