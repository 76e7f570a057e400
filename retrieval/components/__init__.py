"""One folder a system: what it adds to models and trainings (`goalgrid.grid.settings.components`)."""
