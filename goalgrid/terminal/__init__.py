"""The terminal: options that verbs share, what is printed where, and exit codes."""
