"""Data sets on disk: formats, checks and content. Only `opening` imports torch at the module level."""
