"""The shipped grids: a TOML file a grid."""
