"""The data sets that are known by name: one TOML file per data set."""
