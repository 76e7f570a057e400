"""Makes the site of more than docs/: the README, the pages beside it, a page a topic of the settings, and the API.

In the site, a page of docs/ stands at the top and any other file where it stands in the repository; links follow.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import goalgrid

ROOT = Path(__file__).parent.parent
README, SETTINGS = "README.md", "settings.md"
OUTSIDE = (
    README, "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
    "benchmarks/RESULTS.md",
)  # fmt: skip
MODULES = ("goalgrid.display",)
"""Modules whose classes the public names give."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/, and list the pages that the navigation lacks at its end."""
    from mkdocs.structure.files import File

    for name in OUTSIDE:
        files.append(File.generated(config, _place(name), content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, "api.md", content=_api()))
    files.remove(files.get_file_from_path(SETTINGS))
    for name, content in (settings := _settings()).items():
        files.append(File.generated(config, name, content=content))
    config.nav.append({"Settings by topic": [name for name in settings if name != SETTINGS]})
    listed = str(config.nav)
    config.nav += [file.src_uri for file in files.documentation_pages() if f"'{file.src_uri}'" not in listed]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead the links of a page to where the site has their targets."""
    here = page.file.src_uri
    source = README if here == _place(README) else here if here in OUTSIDE else f"docs/{here}"

    def moved(link: re.Match[str]) -> str:
        target, hash_, part = link[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        found = _place(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        return f"]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{hash_}{part})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, markdown)


def _place(name: str) -> str:
    """The path in the site of a file of the repository."""
    return "overview.md" if name == README else name.removeprefix("docs/")


def _settings() -> dict[str, str]:
    """The page of all settings as a page a topic, and a list of these."""
    start, *sections = (ROOT / "docs" / SETTINGS).read_text(encoding="utf-8").split("\n## ")
    topics: dict[str, str] = {}
    for section in sections:
        title, _, table = section.partition("\n")
        topics[title] = topics.get(title, "") + table
    place = "settings/{}.md".format
    pages = {place(title.strip("[]").lower()): f"# {title}\n{table}" for title, table in topics.items()}
    counts = (text.count("\n| `") for text in pages.values())
    links = [
        f"* [{title.strip('[]')}]({name}): {count}" for title, name, count in zip(topics, pages, counts, strict=True)
    ]
    return {SETTINGS: "\n".join([start, "", "Settings by topic:", "", *links, ""]), **pages}


def _api() -> str:
    """A page of all public names."""
    names = [place.replace(":", ".") for place in goalgrid.PUBLIC.values()]
    text = "# API\n\nWhat `import goalgrid` gives. [Python and notebooks](python.md) shows it at work.\n"
    return text + "".join(f"\n::: {name}\n" for name in (*names, *MODULES))
