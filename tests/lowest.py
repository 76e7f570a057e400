"""The lowest versions that pyproject.toml allows, as constraints of pip: `python -m tests.lowest`."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lines() -> list[str]:
    """`numpy==2.0` for every requirement of the program and of the extras for training."""
    extras = [PROJECT["optional-dependencies"][name] for name in ("pretrained", "ncr", "nltk")]
    requirements = [*PROJECT["dependencies"], *(requirement for extra in extras for requirement in extra)]
    return [re.sub(r"\[.*\]", "", requirement).replace(">=", "==") for requirement in requirements]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
