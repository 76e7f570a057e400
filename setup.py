"""What pyproject.toml cannot say: on the page of a package index, the README's links lead to the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

FOLDER = Path(__file__).parent
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def absolute(link: re.Match[str]) -> str:
    """A link to a file of this version in the repository; pictures as files, pages as pages."""
    place = f"{PROJECT['urls']['Source']}/{'raw' if link['picture'] else 'blob'}/v{PROJECT['version']}"
    return f"{link['picture']}[{link['text']}]({place}/{link['target']})"


readme = (FOLDER / "README.md").read_text(encoding="utf-8")
links = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<target>[^)]+)\)")
setup(long_description=links.sub(absolute, readme), long_description_content_type="text/markdown")
