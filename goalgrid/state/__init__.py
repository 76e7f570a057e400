"""What is on the disk: grids by name, states of their trials, data at hand; and what merge and prune change there."""
