"""The verbs, by what they are about: each parses, calls, prints. Heavy packages are imported where one needs them."""
