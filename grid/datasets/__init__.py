"""The data sets that are known by name: a TOML file a data set."""
