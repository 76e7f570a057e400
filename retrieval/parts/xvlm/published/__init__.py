"""X-VLM's published checkpoints: their weights by our names, their Swin."""
