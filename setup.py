"""What pyproject.toml cannot say: the packages below its folders, the links of a source distribution, and the README.

On the page of a package index, the README's links lead to the repository.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

FOLDER = Path(__file__).parent
PYPROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, PLACES = PYPROJECT["project"], PYPROJECT["tool"]["setuptools"]["package-dir"]
ROOMS = [folder for folder in PLACES.values() if folder != "goalgrid"]
"""The folders at the top to which links in goalgrid/ lead."""


class LinkedSdist(sdist):
    """A source distribution with the links of a checkout, so that tests run where it was unpacked."""

    def make_release_tree(self, base_dir: str, files: Sequence[str]) -> None:
        super().make_release_tree(base_dir, files)
        for room in ROOMS:
            (Path(base_dir) / "goalgrid" / room).symlink_to(f"../{room}")


def packages() -> list[str]:
    """All packages, by the folders that they are in and not by the links to them."""
    links = [name for room in ROOMS for name in (room, f"{room}.*")]
    below = {
        name: find_packages(folder, exclude=links if name == "goalgrid" else []) for name, folder in PLACES.items()
    }
    return [*below, *(f"{name}.{inner}" for name, inners in below.items() for inner in inners)]


def absolute(link: re.Match[str]) -> str:
    """A link to a file of this version in the repository; pictures as files, pages as pages."""
    place = f"{PROJECT['urls']['Source']}/{'raw' if link['picture'] else 'blob'}/v{PROJECT['version']}"
    return f"{link['picture']}[{link['text']}]({place}/{link['target']})"


readme = (FOLDER / "README.md").read_text(encoding="utf-8")
links = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<target>[^)]+)\)")
setup(
    packages=packages(),
    cmdclass={"sdist": LinkedSdist},
    long_description=links.sub(absolute, readme),
    long_description_content_type="text/markdown",
)
