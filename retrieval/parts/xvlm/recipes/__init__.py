"""X-VLM's recipes."""
