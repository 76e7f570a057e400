"""Every benchmark in short form, as one table: `make bench`, or `python benchmarks [--root DIR] [--only NAME ...]`.

Each runs in a process of its own, one after the other; DIR holds Flickr8k's features, as docs/flickr8k.md says, without
which the steps on it are left out. What the short form leaves out is the same command's defaults or more: see
RESULTS.md. The exit code is 1 if a benchmark broke off; a goal that is missed says so in its line.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import measuring

FOLDER = Path(__file__).parent

SHORT: dict[str, list[str]] = {
    "objectives": ["--batch", "128", "1024", "4096", "--rounds", "3", "--no-pml"],
    "evaluation": ["--rounds", "3"],
    "step": [],
    "scorers": ["--rounds", "1", "--batch", "32"],
    "pooling": ["--rounds", "3"],
    "rerank": ["--size", "tiny"],
    "grids": ["--epochs", "1", "--sample", "2"],
    "checkpoint": ["--megabytes", "120"],
    "orchestration": ["--trials", "2000", "6000"],
    "scale": [],
    "aggregate": ["--trials", "9000"],
    "seeds": ["--draws", "200"],
    "marks": ["--tables", "100", "--draws", "199"],
    "claims": ["--draws", "400"],
    "features": ["--trials", "3"],
    "chaos": ["--trials", "6", "--kills", "3"],
}
"""Benchmarks by file, with the arguments that make them short."""


def rows(name: str, arguments: list[str]) -> bool:
    """Run one and print its lines as they come; whether it came to its end."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = False
    for line in process.stdout:
        if line.startswith("| ") and line.strip() not in measuring.HEADER:
            measuring.show([line.rstrip()])
            found = True
    return found and process.wait() in (0, 1)  # 1: a goal is missed


def main() -> int:
    """Run them and print the table; names of those that broke off go to stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="of Flickr8k")
    parser.add_argument("--only", nargs="+", choices=list(SHORT), default=list(SHORT))
    given = parser.parse_args()
    measuring.begin("torch", "ray")
    broken = []
    for name in given.only:
        began = time.monotonic()
        root = ["--root", str(given.root)] if name in ("step", "grids") and given.root else []
        if not rows(name, [*SHORT[name], *root]):
            broken.append(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if broken:
        print(f"broke off: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
