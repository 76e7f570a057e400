"""`goalgrid new`: generate a commented starter grid file, and check it."""

import json
import tomllib
from collections.abc import Sequence

from goalgrid.grid import catalog, gridfile
from goalgrid.grid.catalog import SHIPPED, Catalog
from goalgrid.grid.columns import Columns, to_toml
from goalgrid.grid.document import Text, content_of
from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.settings.base import check_named

EXAMPLES = ("triplet-hn", "infonce", "sig-ms_con")
"""Objectives of a new grid: the usual triplet loss, CLIP's loss, and a cell of GOAL's matrix."""


def text(
    name: str,
    dataset: str | None,
    recipes: Sequence[str],
    objectives: Sequence[str],
    root: str | None,
    uses: Sequence[str] = (),
    columns: Columns = (),
    known: Catalog = SHIPPED,
) -> tuple[str, list[str]]:
    """Return the text of a grid file, and notes on its data; raise UserError for invalid names or a missing folder.

    Without a data set, it is the user's own data under the grid's name or, without a root, the synthetic scenes.
    Objectives registered by the files in `uses` are listed after the `EXAMPLES`.
    """
    from goalgrid.results.pages import page

    if name in catalog.names("presets"):
        raise UserError(f"a shipped grid is already called {name!r}. Choose another name.")
    dataset = dataset or (name if root else "shapes")
    check_named("grid", name)
    check_named("data set", dataset)
    usual, read, notes = _recipe(dataset, root, columns) if root else ("cnn-bow", columns, [])
    axes = {"recipes": recipes or [usual], "objectives": [*(objectives or (*EXAMPLES, *known.registered("objective")))]}
    files = f"uses = {json.dumps(uses)}" if uses else '# uses = ["losses.py"]'
    place = hint = ""
    if not root and dataset not in catalog.names("datasets"):
        raise UserError(f"missing option --root DIR: the folder of {dataset!r}. Accepted layouts: goalgrid data where")
    if root or not catalog.described(dataset).embedded:
        hint = "" if root else f"  # change this; `goalgrid data where {dataset}` shows where to get it"
        place = json.dumps(str(user_path(root or f"/data/{dataset}").absolute()), ensure_ascii=False)
    named = f"\ncolumns = {to_toml(read)}  # of the table of captions" if read else ""
    lists = {axis: json.dumps(of) for axis, of in axes.items()}
    content = page("new_grid.toml", name=name, dataset=dataset, uses=files, root=place, hint=hint + named, **lists)
    gridfile.check(content_of(Text(f"grid {name!r}", tomllib.loads(content))))
    return content, notes


def _recipe(dataset: str, folder: str, columns: Columns) -> tuple[str, Columns, list[str]]:
    """Return a recipe that fits the folder's data, the columns of a caption table in it, and problems or notes.

    Images and features are not read, as that takes long; `plan` and `data check` do it.
    """
    from goalgrid.retrieval.data import annotations, precomp
    from goalgrid.retrieval.data.forms import forms
    from goalgrid.retrieval.splits.problems import check_command

    catalog.has_folder(dataset, f"--root {folder}")
    root = user_path(folder).absolute()
    if root.is_dir() and annotations.find(dataset, root, columns):
        try:
            annotated = annotations.Annotated.of(dataset, root, columns)
        except UserError as error:
            return "cnn-bow", columns, [str(error)]
        notes = [str(problem) for problem in (*annotated.problems, *annotated.notes())]
        return "cnn-bow", annotated.columns, notes
    if form := next((form for form in forms() if form.begun(root)), None):
        doubts = dict[str, str]()
        for recipe in (name for name in catalog.names("recipes") if SHIPPED.reads(name) == f"{form.noun}s"):
            try:
                form.check(root, catalog.recipe(recipe).model.image.reads)
                return recipe, (), []
            except UserError as error:
                doubts[recipe] = str(error)
        recipe, doubt = next(iter(doubts.items()))
        return recipe, (), [doubt]
    if features := precomp.find(dataset, root):
        unread = precomp.unread(features, catalog.described(dataset).test_splits)
        return "fc-bow", (), [str(remark) for remark in unread]
    missing = str((root.is_dir() and annotations.begun(root, columns)) or f"no data in a known form under {root}.")
    return "cnn-bow", columns, [f"{missing} {check_command(dataset, root)}"]
