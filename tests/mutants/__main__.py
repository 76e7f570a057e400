"""Puts small faults into a copy of the sources, one at a time, and lists those that no test notices.

    make mutants ROOMS="objectives results/statistics" N=20 SEED=7

A fault is noticed if a test that executes it fails, and passes without it; or if mypy refuses it. A test that fails by
another error than an assertion crashes: it only ran into the fault.

All tests run once, to see which lines each executes; that is kept in .cache/mutants. Files of tests that changed run
again, and all do by FRESH=1; until then, the tests of a source that changed are those of its whole file. Whether a
survivor matters is for a person to say: speed, words and equal code do not.
"""

import argparse
import difflib
import importlib
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.faults import Fault, Sources
from tests.mutants.lines import traced
from tests.mutants.trying import copy, noticing, planted, refused_by_types
from tests.program import ROOMS

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "mutants"
IMPORTED = {"matplotlib.figure", "pandas", "scipy", "torch", "transformers"}
"""What takes long to import: that is done once, before the processes of the faults fork off."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GOALGRID_FLICKR8K": os.environ.get("GOALGRID_FLICKR8K", str(ROOT.parent / "shared" / "flickr8k")),
    "GOALGRID_PAPERS": os.environ.get("GOALGRID_PAPERS", str(ROOT.parent / "shared" / "papers")),
}
"""What tests/conftest.py would look for beside the copy."""


def main() -> None:
    """Draw faults, try each, and list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=ROOMS, help="folders or files of the program")
    parser.add_argument("--n", type=int, default=20, help="how many faults")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="that they are drawn with")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each")
    parser.add_argument("--fresh", action="store_true", help="measure all tests again")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy(ROOT, tree)
        tests = traced(tree, CACHE, ENVIRONMENT, asked.fresh)
        sources = Sources(ROOT)
        for library in IMPORTED & sources.imports:
            importlib.import_module(library)
        faults = sources.draw(asked.rooms, asked.n, asked.seed)
        print(f"{len(faults)} faults in {' '.join(asked.rooms)}, seed {asked.seed}", flush=True)
        survivors, crashes = [], 0
        for number, fault in enumerate(faults, 1):
            chosen = tests.of(fault, asked.seconds)
            failed = noticing(fault, chosen, tree, ENVIRONMENT, asked.seconds)
            with planted(fault, tree):
                noticed = failed.test if failed else refused_by_types(tree, CACHE) and "mypy"
            crashes += bool(failed and failed.crashed)
            if not noticed:
                survivors.append(fault)
            by = f"noticed by {noticed}{', which crashes' * bool(failed and failed.crashed)}"
            print(f"\n{number}. {shown(fault)}\n{by if noticed else f'SURVIVED {len(chosen)} tests'}", flush=True)
    noticed = len(faults) - len(survivors)
    print(f"\nNoticed: {noticed} of {len(faults)} ({crashes} by a crash), seed {asked.seed}. Survived:\n")
    print("\n\n".join(map(shown, survivors)))


def shown(fault: Fault) -> str:
    """The place, and the lines before and after."""
    source = (ROOT / fault.file).read_bytes()
    before, after = (text.decode().splitlines() for text in (source, fault.text(source)))
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]
    return "\n".join([f"{fault.file}:{fault.line}", *lines])


if __name__ == "__main__":
    main()
