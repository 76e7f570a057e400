"""Checkpoints of others: read without running their code, and mapped to our model by one TOML file per kind."""
