"""The command line: verbs, options, shell completion, printing and exit codes."""
