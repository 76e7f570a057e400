"""The recipes of CE and MMT, and small copies of them."""
