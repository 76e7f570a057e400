"""Shared by all layouts: blocks, columns with their titles, and captions that explain the numbers."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import Cell, block_title, with_values
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.protocols import ECCV, JUDGED, shown
from goalgrid.results.layouts.cell_settings import BY_CELL, chosen_of, chosen_values, earlier_searches, unequal_settings
from goalgrid.results.layouts.names import paper_name
from goalgrid.results.layouts.searched import chosen, fresh_seeds, of_fewer_points, search_against_fresh, validation_of
from goalgrid.results.records.scores import Score, Scores, counted_reasons
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.legend import Legend, Sentence

if TYPE_CHECKING:  # a table of a grid reads no paper
    from goalgrid.results.reference.reading import Paper

TableSource: TypeAlias = "Scores | Paper"
"""Source of a table's values: the records of a grid, or the numbers printed in a paper."""


@dataclass(frozen=True)
class Layout:
    """One way to arrange scores in a table."""

    table: Callable[[Sequence[Cell], TableSource, Sequence[str]], Table]
    """Builds the table from the cells, their values and the metrics given by `--metric`."""
    of_the_matrix: bool = False
    """Whether it can only show objectives of GOAL's matrix."""
    metrics: int | None = None
    """Number of metrics it shows; None: all recalls, plus any metrics requested by `--metric`."""


METRIC_NAMES = {
    "r1": "Recall@1 (%)",
    "r5": "Recall@5 (%)",
    "r10": "Recall@10 (%)",
    "medr": "median rank",
    "rsum": "rsum, the sum of the six recalls (%)",
    "eccv_map_at_r": "ECCV Caption's mAP@R (%)",
    "eccv_rprecision": "ECCV Caption's R-Precision (%)",
    "eccv_r1": "ECCV Caption's Recall@1 (%)",
    **{f"cxc_r{k}": f"CxC's Recall@{k} (%)" for k in (1, 5, 10)},
}

OF_MODEL = {"parameters": "millions of weights", "kpps": "thousands of image-text pairs scored per second (kpps)"}
"""Properties of a model that do not depend on its seed, so they have no spread."""

COLUMN_NAMES = METRIC_NAMES | OF_MODEL
"""All metrics that `--metric` accepts, with their names in captions."""

DIRECTIONS = {
    "i2t": Label("Image → Text", r"Image $\rightarrow$ Text"),
    "t2i": Label("Text → Image", r"Text $\rightarrow$ Image"),
}
CUTS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "MedR"}
CUTS |= {"eccv_map_at_r": "mAP@R", "eccv_rprecision": "R-P", "eccv_r1": "ECCV R@1"}
CUTS |= {f"cxc_r{k}": f"CxC R@{k}" for k in (1, 5, 10)}
"""Columns of metrics that have a direction."""
RECALLS = ("r1", "r5", "r10")
TOTALS = {"rsum": "RSUM", "oips": "#OIPs", "parameters": "weights (M)", "kpps": "kpps"}
"""Columns of metrics without a direction; VSE+2AD calls operating items per second #OIPs."""

LISTED = 3
"""Maximum number of blocks that a note in a caption lists by name."""

BEST = "best in bold"

_SELECTION = {"best-val-rsum": "checkpoint with the best validation rsum", "last": "last checkpoint"}


def blocks_of(cells: Sequence[Cell], rows: Callable[[dict[str, Cell]], Iterable[Row]]) -> tuple[Block, ...]:
    """Build one block per data set, recipe and swept values; `rows` maps its cells by objective to rows."""
    blocks = nested((cell.block, cell.objective, cell) for cell in cells)
    several = len({dataset for dataset, _, _ in blocks}) > 1
    return tuple(
        Block(block_title(key), tuple(rows(block)), None if several else with_values(key[1], key[2]))
        for key, block in blocks.items()
    )


def entry(cell: Cell, source: TableSource, metric: str, **more: str) -> TableEntry:
    """Build the table entry of a cell's metric; `more`: further keys in addition to the cell's axes."""
    keys = {**source.axes(cell), **more, "metric": metric}
    value_of = source.of_model if metric in OF_MODEL and isinstance(source, Scores) else source.of
    settings = source.unequal_of(cell) if isinstance(source, Scores) else {}
    validation = validation_of(cell, source.rows) if isinstance(source, Scores) else None
    known = validation.known() if validation else {}
    return TableEntry(value_of(cell, metric), keys, settings=settings, chosen=chosen_of(cell), validation=known)


def beside(what: str, asked: Sequence[str], scores: TableSource) -> str:
    """Describe what a layout of all recalls shows, including further metrics that were requested."""
    if isinstance(scores, Scores) and scores.judged:
        return "ECCV Caption's mAP@R, R-Precision and R@1, and CxC's R@1, R@5 and R@10 (%)"
    further = [COLUMN_NAMES[name] for name in asked if name not in ("r1", "r5", "r10", "rsum")]
    return f"{what} with {' and '.join(further)}," if further else what


def caption(cells: Sequence[Cell], scores: TableSource, what: str, views: Sequence[Scores] = ()) -> Legend:
    """Write the caption: content, protocol, checkpoint selection, the meaning of ±, and what is missing.

    The caption of a paper's table is its own. `views`: the scores under each protocol, if several are shown.
    """
    if not isinstance(scores, Scores):
        return scores.caption
    views = views or [scores]
    protocols = dict.fromkeys(view.protocol_of(cell) for cell in cells for view in views)
    by_protocol = ((cell, {view.protocol_of(cell): view for view in views}) for cell in cells)
    values = [view.of(cell, view.metrics[0]) for cell, of_cell in by_protocol for view in of_cell.values()]
    of_models = "per model, independent of objective and seed; best in bold." if what in OF_MODEL.values() else ""
    title = Sentence(
        f"{what} on {', '.join(map(shown, protocols))}:",
        f"{what} on {' and '.join(map(paper_name, protocols))}",
    )
    sentences = [
        Sentence(of_models) if of_models else conditions(cells, values, chosen(cells)),
        Sentence(chosen_values(cells), printed=""),
        earlier_searches(cells),
        of_fewer_points(cells),
        Sentence(search_against_fresh(cells, scores.rows), printed=""),
        Sentence(settings := unequal_settings(cells), settings.replace(BY_CELL, "")),
        _at_chance(cells, scores),
        lacking(values, "cells"),
        Sentence(scores.to_evaluate(cells), printed=""),
        *(view.unknown_words(cells) for view in views),
        scores.leaks(cells),
        _imported(cells),
        *(Sentence(text, printed="") for text in scores.of_other_code(cells)),
        _speeds(scores) if OF_MODEL["kpps"] in what else "",
    ]
    return Legend.of(title, sentences)


def conditions(cells: Sequence[Cell], values: Iterable[Score], before: str = "", marks: str = BEST) -> Sentence:
    """State how the values were obtained: seeds, checkpoint selection, and variant of the objectives."""
    variants = list(dict.fromkeys(cell.trials[0].shared.objective.variant for cell in cells))
    spread, selected = _spread(cells, values), selections(cells)
    variant = f"{' and '.join(variants)} variant of the objectives"
    short = spread.replace("sample standard deviation", "std")
    released = [variant.removesuffix(" of the objectives")] if variants != ["paper"] else []
    parts = [short, selected, *released, marks]
    return Sentence(f"{before}{spread}; {selected}; {variant}; {marks}.", f"{before}{'; '.join(filter(None, parts))}.")


def _speeds(scores: Scores) -> Sentence | str:
    """State how speeds are measured, and on which devices they were measured."""
    models = scores.models
    return Sentence(models.note(), f"kpps on {'; '.join(models.devices)}." if models.devices else "") if models else ""


NOT_LEARNT = "no better than chance on the validation split"
NO_BEST = f"All cells are {NOT_LEARNT}, so none is best."


def _at_chance(cells: Sequence[Cell], scores: Scores) -> str:
    """Name the blocks in which all finished cells perform at chance level; empty if there are none."""
    blocks = grouped((block_title(cell.block), scores.of(cell, scores.metrics[0])) for cell in cells)
    finished = {title: [score for score in values if score.n] for title, values in blocks.items()}
    titles = [title for title, values in finished.items() if values and all(score.at_chance for score in values)]
    return about(NO_BEST, titles, blocks) if titles else ""


def about(note: str, blocks: Collection[str], every: Collection[str]) -> str:
    """Prefix a note with the names of its blocks, unless it applies to all blocks."""
    names = ", ".join(blocks) if len(blocks) <= LISTED else f"{len(blocks)} blocks"
    return note if len(blocks) == len(every) else f"{names}: {note}"


def selections(cells: Sequence[Cell]) -> str:
    return ", ".join(dict.fromkeys(_SELECTION[cell.trials[0].shared.train.selection] for cell in cells))


def _spread(cells: Sequence[Cell], values: Iterable[Score]) -> str:
    cells = [cell for cell in cells if not cell.published]
    if not cells:
        return "no seed, so no spread"
    counts, done = sorted({len(cell.trials) for cell in cells}), max((value.n for value in values), default=0)
    if counts[-1] > 1 and done == 1:
        return "one seed so far, so no spread"
    if counts[-1] > 1:
        seeds = f"{done} of {counts[-1]}" if 0 < done < counts[-1] else " or ".join(map(str, counts))
        return f"mean ± sample standard deviation over {fresh_seeds(cells, seeds)}"
    several = len({trial.seed for cell in cells for trial in cell.trials}) > 1
    return "one seed per value, so no spread" if several else "one seed, so no spread"


def _imported(cells: Sequence[Cell]) -> str:
    names = "; ".join(dict.fromkeys(f"{cell.recipe} ({cell.published})" for cell in cells if cell.published))
    return f"Published weights, evaluated here but not trained here, so without a seed: {names}." if names else ""


def lacking(scores: Sequence[Score], nouns: str) -> str:
    """State what is missing: `1 of 15 cells are missing (--): 4 trials never run.`; empty if nothing is missing."""
    counts = {
        "are missing (--)": sum(score.n == 0 for score in scores),
        "lack seeds (n/expected)": sum(0 < score.n < score.expected for score in scores),
    }
    parts = [f"{count} of {len(scores)} {nouns} {what}" for what, count in counts.items() if count]
    why = dict(missing for score in scores for missing in score.missing)  # cells may share a trial
    return f"{'; '.join(parts)}: {counted_reasons(why.values())}." if parts else ""


def check_judged(metrics: Sequence[str], protocol: str | None) -> None:
    """Raise UserError unless all metrics fit the protocol: only human judgements with `ECCV`, none without it."""
    for name in metrics:
        if name not in OF_MODEL and (name in JUDGED) != (protocol == ECCV):
            known = JUDGED if protocol == ECCV else [other for other in METRIC_NAMES if other not in JUDGED]
            where = f"of --protocol {ECCV}" if protocol == ECCV else f"without --protocol {ECCV}"
            raise UserError(unknown("metric", name, known, where=where))


def by_direction(metric: str) -> dict[str, Label]:
    """Return a metric in both directions, `i2t_r1` and `t2i_r1`, with their titles; a total has no direction."""
    if metric in TOTALS:
        return {metric: Label(TOTALS[metric])}
    return {f"{direction}_{metric}": title for direction, title in DIRECTIONS.items()}


def recalls(metrics: Sequence[str], asked: Sequence[str], prefix: str = "") -> tuple[tuple[Group, ...], list[str]]:
    """Return one group of recall columns per direction, then totals such as rsum; and the metric of each column.

    Args:
        metrics: the metrics that the source has; its totals are always shown, except under a prefix.
        asked: further metrics to show.
        prefix: a protocol, for tables with several protocols next to each other.
    """
    groups, shown, of = list[Group](), list[str](), {"protocol": prefix} if prefix else {}
    cuts = dict.fromkeys([*RECALLS, *JUDGED, *(name for name in asked if name in CUTS)])
    for direction in sorted(DIRECTIONS, key=[*(name[:3] for name in metrics), *DIRECTIONS].index):
        title, present = DIRECTIONS[direction], [name for name in cuts if f"{direction}_{name}" in metrics]
        if present:
            label = Label(f"{prefix} {direction[0].upper()}→{direction[2].upper()}") if prefix else title
            keys = tuple({"metric": f"{direction}_{name}", **of} for name in present)
            groups.append(Group(label, tuple(Label(CUTS[name]) for name in present), keys=keys))
            shown += [f"{direction}_{name}" for name in present]
    always = [name for name in TOTALS if name in metrics] if not prefix else []
    totals = dict.fromkeys(name for name in [*always, *asked] if name in TOTALS)
    groups += [Group(Label(prefix), (Label(TOTALS[name]),), keys=({"metric": name, **of},)) for name in totals]
    return tuple(groups), [*shown, *totals]


def noun_of(cells: Iterable[Cell]) -> str:
    """Return what the captions of these cells describe, e.g. `video`; `image` if the cells differ."""
    nouns = {cell.noun for cell in cells}
    return nouns.pop() if len(nouns) == 1 else "image"


def directions(noun: str) -> dict[str, Label]:
    """Return the titles of both directions: `Image → Text`, or with another noun.

    >>> [title.text for title in directions("clip").values()]
    ['Clip → Text', 'Text → Clip']
    """
    return {direction: _named(title, noun) for direction, title in DIRECTIONS.items()}


def named(table: Table, noun: str) -> Table:
    """Return the table with `noun` instead of `Image` in the titles of its columns."""
    return replace(table, groups=tuple(replace(group, title=_named(group.title, noun)) for group in table.groups))


def _named(title: Label, noun: str) -> Label:
    word, letter = noun.capitalize(), noun[0].upper()
    text = title.text.replace("Image", word).replace("I→T", f"{letter}→T").replace("T→I", f"T→{letter}")
    return Label(text, title.latex.replace("Image", word))
