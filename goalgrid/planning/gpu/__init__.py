"""The GPU plan: memory and hours of trials on a GPU that need not be here. `plan` works without this folder."""
