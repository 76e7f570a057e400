"""The shipped grids: one TOML file per grid."""
