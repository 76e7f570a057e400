"""GPU needs of trials: the memory probe, and the GPU share computed from it."""
