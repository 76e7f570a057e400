"""The verbs, one module per subject: each parses, calls and prints. Heavy packages are imported only when needed."""
