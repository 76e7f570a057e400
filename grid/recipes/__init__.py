"""The shipped recipes, each a published setting: one TOML file per recipe, each number with its source."""
