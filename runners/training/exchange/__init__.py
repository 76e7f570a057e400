"""What replicas exchange within a step: embeddings, gradients, and the statistics of batch norms."""
