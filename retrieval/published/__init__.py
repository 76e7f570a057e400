"""Published checkpoints: read without running their code, and mapped to our models by one TOML file per kind."""
