"""CPU time of `goalgrid plan GRID --device h100` for the shipped grids, data elsewhere: `python benchmarks/plans.py`.

Each plan runs in a process of its own, its imports included.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring

from goalgrid.grid import catalog

SECONDS = 10.0


def main() -> None:
    """Measure and print a table for RESULTS.md, the longest plan last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", nargs="+", default=catalog.names("presets"), help="default: all that are shipped")
    given = parser.parse_args()
    measuring.begin("torch")
    spent = dict[str, float]()
    with tempfile.TemporaryDirectory() as runs:
        for grid in given.grids:
            spent[grid] = measuring.goalgrid("plan", grid, "--device", "h100", "--runs", runs).cpu
            print(f"{grid}: {spent[grid]:.1f} s", file=sys.stderr, flush=True)
    for grid in sorted(spent, key=spent.__getitem__):
        seconds = spent[grid]
        row = measuring.row(f"plan {grid} --device h100", f"{seconds:.1f} s", goal="<= 10 s", met=seconds <= SECONDS)
        measuring.show([row])


if __name__ == "__main__":
    main()
