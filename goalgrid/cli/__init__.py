"""The command line: its app, verbs and options, what the shell completes, and all that prints or exits."""
