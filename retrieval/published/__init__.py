"""Checkpoints of others: read without running their code, and mapped to our model, a TOML file a kind of checkpoint."""
