"""One folder a system: what it adds to models and trainings, registered on its first page (`goalgrid.grid.parts`)."""
