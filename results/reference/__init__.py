"""The results that the four papers report, as printed: one TOML file per table."""
