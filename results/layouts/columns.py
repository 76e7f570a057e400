"""Columns that layouts share: the recalls of both directions and their sum."""

from collections.abc import Sequence
from dataclasses import replace

from results.tables.table import Group, Label, Table

DIRECTIONS = {
    "i2t": Label("Image → Text", r"Image $\rightarrow$ Text"),
    "t2i": Label("Text → Image", r"Text $\rightarrow$ Image"),
}
RECALLS = ("r1", "r5", "r10")
TOTALS = {"rsum": "RSUM", "oips": "#OIPs"}
"""Columns of their own: the sum of the recalls, and what VSE+2AD calls operating items per second."""


def by_direction(metric: str) -> dict[str, Label]:
    """A metric in both directions, `i2t_r1` and `t2i_r1`, with the directions' titles; rsum has no direction."""
    if metric == "rsum":
        return {"rsum": Label("rsum")}
    return {f"{direction}_{metric}": title for direction, title in DIRECTIONS.items()}


def recalls(metrics: Sequence[str], prefix: str = "") -> tuple[list[Group], list[str]]:
    """A group a direction with the recalls that there are, and the metrics of all columns."""
    groups, shown = [], []
    for direction, title in DIRECTIONS.items():
        present = [recall for recall in RECALLS if f"{direction}_{recall}" in metrics]
        if present:
            label = Label(f"{prefix} {direction[0].upper()}→{direction[2].upper()}") if prefix else title
            columns = tuple(Label(f"R@{recall[1:]}") for recall in present)
            groups.append(Group(label, columns))
            shown += [f"{direction}_{recall}" for recall in present]
    return groups, shown


def recalls_and_totals(metrics: Sequence[str]) -> tuple[list[Group], list[str]]:
    """The recalls, then a column each for the totals that there are."""
    groups, shown = recalls(metrics)
    totals = [name for name in TOTALS if name in metrics]
    return groups + [Group(Label(""), (Label(TOTALS[name]),)) for name in totals], shown + totals


def of_videos(table: Table) -> Table:
    """The same table with Video in the titles where they say Image."""
    return replace(table, groups=tuple(replace(group, title=_of_videos(group.title)) for group in table.groups))


def _of_videos(title: Label) -> Label:
    text = title.text.replace("Image", "Video").replace("I→T", "V→T").replace("T→I", "T→V")
    return Label(text, title.latex.replace("Image", "Video"))
