"""Models of one architecture side by side: K sets of weights, stacked along a first axis, as one computation."""
