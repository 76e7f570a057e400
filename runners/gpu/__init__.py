"""How much of a GPU a trial needs: the memory probe, and the share that follows from it."""
