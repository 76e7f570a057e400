"""What `goalgrid data where` says: where to get a data set, and how its folder must look."""

from goalgrid.grid import catalog
from goalgrid.grid.protocols import protocol


def guide(name: str, known: catalog.Dataset) -> list[str]:
    """Where to get a data set, how its folder may look, and how large it is."""
    lines, noun = [f"{name}: {known.description}"], f"{catalog.noun(name)}s"
    lines += [
        f"  {split:6}{size.images:>8,} {noun}{size.captions:>9,} captions" for split, size in known.splits.items()
    ]
    lines += [f"  protocol {name}: {protocol(name).description}" for name in known.protocols]
    if known.embedded:
        return [*lines, "", "Nothing to download: it is made on the spot."]
    lines += ["", "Where to get it"]
    for source in known.sources:
        size = f": {source.size}" if source.size else ""
        lines += [f"  {source.what}{size}", f"    {source.at}", *([f"    {source.note}"] if source.note else [])]
    lines += ["", "How DIR may look: one of"]
    for title, tree in known.trees.items():
        lines += [f"  {title}", *(f"    {line}" for line in tree.strip().splitlines())]
    more = [f"More: {known.page}"] if known.page else []
    return [*lines, "", f"Check your copy: goalgrid data check {name} --root DIR", *more]


def own_guide() -> list[str]:
    """How a folder with data of one's own may look, in each form."""
    from goalgrid.retrieval.data import precomp
    from goalgrid.retrieval.data.annotations import FORMATS
    from goalgrid.retrieval.data.forms import forms

    trees = {title: form.tree for title, form in FORMATS.items() if form.tree} | {"features": precomp.TREE}
    for form in forms():
        trees |= {f"{form.noun}s: {title}": tree for title, tree in catalog.dataset(form.shown_by).trees.items()}
    lines = ["Data of your own have any name that `goalgrid datasets` does not list. How DIR may look: one of", ""]
    for title, tree in trees.items():
        lines += [f"  {title}", *(f"    {line}" for line in tree.strip().splitlines())]
    grid = '[data.NAME] root = "DIR"'
    return [
        *lines,
        "",
        "Check it: goalgrid data check NAME --root DIR",
        f"In a grid file: {grid}. More: docs/data/own.md",
    ]
