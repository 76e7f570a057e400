"""Read the state on the disk: grids by name, states of their trials, available data; merge and prune runs folders."""
