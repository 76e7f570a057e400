"""Set scorers, which compute image-text scores from sets of embeddings; the dot product needs no module."""
