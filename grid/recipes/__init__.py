"""The shipped recipes, each a published setting: a TOML file a recipe, each number with its source."""
