"""What the four papers report, number by number, as printed: a TOML file for every table."""
