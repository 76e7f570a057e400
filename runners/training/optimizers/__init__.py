"""How weights are updated: optimisers, their groups of weights, and the schedules of rates."""
