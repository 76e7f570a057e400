"""The ids of what is shipped, by the present program: `python tests/grid/golden_ids.py > tests/grid/golden_ids.txt`.

A line that changes is a trial that users have and can no longer find. Write the file again where an id has to move, or
where something was added; never to silence a test.
"""

import sys
from collections.abc import Iterable, Iterator

from goalgrid.grid import catalog
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import digest
from goalgrid.grid.objectives import OURS
from goalgrid.grid.objectives.parameters import VARIANTS


def lines() -> Iterator[str]:
    """Ids of every recipe with an objective of each family, of every objective and data set; of grids a digest.

    The first objective of a family in the catalogue stands for it.
    """
    families = {OURS[name].family: name for name in reversed(list(OURS))}
    yield from ids(catalog.names("recipes"), families.values())
    for variant in VARIANTS:
        yield from ids(["cnn-bow"], OURS, f"objective.variant={variant}", "train.ranker=fc-bow")
    for dataset in catalog.names("datasets"):
        yield from ids(["cnn-bow"], ["con_con"], f"datasets={[dataset]}")
    for preset in catalog.names("presets"):
        found = [trial.id for trial in trials_of(expand(load(preset)))]
        yield f"{preset}: {len(found)} trials, {digest(sorted(found))[:16]}"


def ids(recipes: Iterable[str], objectives: Iterable[str], *overrides: str) -> Iterator[str]:
    """Ids of these recipes with these objectives, on the embedded data unless told otherwise, with the first seed."""
    axes = f"recipes={[*recipes]}", f"objectives={[*objectives]}", "datasets=shapes", "seeds=0"
    yield from (trial.id for trial in trials_of(expand(load("demo", [*axes, *overrides]))))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in sorted(set(lines())))
