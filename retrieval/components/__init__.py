"""Components of published systems, one folder each: additions to models and training."""
