"""The fairness sheet: checks whether all cells of a grid were trained and tuned under equal conditions."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, NamedTuple

from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.expansion import Cell, block_title
from goalgrid.grid.fair import RULES
from goalgrid.grid.groups import grouped
from goalgrid.grid.store.home import Home
from goalgrid.grid.syntax import setting_text
from goalgrid.results.analysis.documents import Document, DocumentSection, Sheet
from goalgrid.results.layouts.cell_settings import chosen_of
from goalgrid.results.layouts.searched import Validation, named, points, validation_of
from goalgrid.results.records import record_cache
from goalgrid.results.records.rounding import NONE
from goalgrid.results.records.scores import Scores
from goalgrid.results.tables import Row, Table

APART = 0.5
"""If a block's shares of clipped steps differ by more than this, the optimizers are effectively different."""


class Fault(NamedTuple):
    """A fairness fault of a cell."""

    rule: str
    """Name of the broken rule in `RULES`."""
    text: str


class Effort(NamedTuple):
    """Training effort of trials: epochs and wall-clock time."""

    epochs: int = 0
    seconds: float = 0.0

    @property
    def hours(self) -> str:
        """Hours, with one decimal place; with two significant digits if below one hour."""
        hours = self.seconds / 3600
        return f"{hours:.2g}" if hours < 1 else f"{hours:,.1f}"


@dataclass(frozen=True)
class FairRow:
    """A cell's row of the fairness sheet: chosen settings, search cost, and how its trials trained."""

    cell: Cell
    chosen: Mapping[str, Any]
    """Settings chosen by validation."""
    default: Mapping[str, Any]
    """Default values of these settings; empty if the search did not try them."""
    validation: Validation | None
    """Validation scores of the search; None if nothing is chosen."""
    searched: Effort
    """Effort of the search, including confirmation trials."""
    trained: Effort
    """Effort of the trials shown in tables."""
    clipped: float
    """Share of their steps with a clipped gradient; NaN if their histories are too old to tell."""
    collapsed: tuple[int, ...]
    """Seeds that are at chance level or failed."""
    last: tuple[int, int]
    """Number of trials whose best epoch is the last, and of finished trials that select an epoch."""
    settings: Mapping[str, Any]
    """Settings that differ from other cells of the data set without being an axis."""
    faults: tuple[Fault, ...] = ()

    @property
    def stopped(self) -> int:
        return sum(choice.stopped for choice in self.cell.choices)

    @property
    def share(self) -> float:
        """Epochs trained in the search, as a share of those without early stopping; NaN without a search."""
        spent, whole = (sum(choice.epochs[place] for choice in self.cell.choices) for place in (0, 1))
        return spent / whole if whole else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return all values for JSON; missing numbers are None."""
        tried = [choice.to_dict() for choice in self.cell.choices]
        numbers = vars(self.validation) if self.validation else {}
        return {
            **self.cell.axes,
            "chosen": dict(self.chosen),
            "default": dict(self.default),
            "validation": {name: None if math.isnan(value) else value for name, value in numbers.items()},
            "searches": tried,
            "search_epochs": self.searched.epochs,
            "search_seconds": self.searched.seconds,
            "epochs": self.trained.epochs,
            "seconds": self.trained.seconds,
            "clipped_steps": None if math.isnan(self.clipped) else self.clipped,
            "collapsed_seeds": list(self.collapsed),
            "best_epoch_is_last": self.last[0],
            "finished": self.last[1],
            "unequal_settings": dict(self.settings),
            "faults": [fault._asdict() for fault in self.faults],
        }


def fair_rows(cells: Sequence[Cell], scores: Scores, home: Home) -> list[FairRow]:
    """Return one row per trained cell; unreadable records are left out."""
    cells = [cell for cell in cells if cell.trials and not cell.published]
    searching = {name for cell in cells for choice in cell.choices for one in choice.tried for name in _ids(one)}
    ids = dict.fromkeys([*scores.rows, *searching])
    done = record_cache.rows(home, [name for name in ids if home.trial(name).is_done()], _COLUMNS, {})
    rows = [_row(cell, scores, home, done) for cell in cells]
    blocks = grouped((row.cell.block, row) for row in rows)
    common = _common_settings(rows)
    return [replace(row, faults=tuple(_faults(row, blocks[row.cell.block], common, scores))) for row in rows]


def broken(rows: Iterable[FairRow], required: Collection[str]) -> list[str]:
    """List the faults against required rules, each as `RULE: CELL: FAULT`."""
    return [f"{f.rule}: {_title(row.cell)}: {f.text}" for row in rows for f in row.faults if f.rule in required]


def lettered(table: Table, rows: Iterable[FairRow]) -> Table:
    """Add each cell's faults to the table as remarks; LaTeX shows them as lettered footnotes."""
    faults = {tuple(sorted(_keys(row.cell).items())): tuple(_short(row)) for row in rows}
    names = {name for keys in faults for name, _ in keys}

    def remarks(keys: Mapping[str, str]) -> tuple[str, ...]:
        return faults.get(tuple(sorted((name, keys[name]) for name in names if name in keys)), ())

    def line(row: Row) -> Row:
        """Return the row with its remarks; remarks that all entries share move to the row's name."""
        first, *others = [remarks(entry.keys) for entry in row.entries if entry] or [()]
        if all(other == first for other in others):
            return replace(row, notes=(*row.notes, *first))
        entries = (entry and replace(entry, remarks=remarks(entry.keys)) for entry in row.entries)
        return replace(row, entries=tuple(entries))

    blocks = (replace(block, rows=tuple(map(line, block.rows))) for block in table.blocks)
    return replace(table, blocks=tuple(blocks))


def _short(row: FairRow) -> Iterable[str]:
    return dict.fromkeys(RULES[fault.rule].broken for fault in row.faults)


def document(rows: Sequence[FairRow]) -> Document:
    """Build the sheet: for each block the chosen settings, search costs and training; all faults in the footer."""
    sections = tuple(
        DocumentSection(block_title(block), tuple(sheet for sheet in _sheets(of_block) if sheet.rows))
        for block, of_block in grouped((row.cell.block, row) for row in rows).items()
    )
    several = len(sections) > 1
    faults = [
        f"{_title(row.cell) if several else row.cell.objective}, {fault.rule}: {fault.text}"
        for row in rows
        for fault in row.faults
    ]
    return Document(sections, tuple(faults or [NO_FAULT]))


NO_FAULT = f"No fault by any of the {len(RULES)} rules: all cells had the same chance."
_COLUMNS = ["epochs", "train_seconds", "selected_epoch"]


def _ids(tried: Any) -> list[str]:
    return [tried.trial, *tried.confirmed]


def _row(cell: Cell, scores: Scores, home: Home, done: Mapping[str, Mapping[str, Any]]) -> FairRow:
    finals = [trial.id for trial in cell.trials if trial.id in scores.rows]
    defaults = [choice.default for choice in cell.choices if choice.default]
    chooses = cell.trials[0].shared.train.selection != "last" and cell.trials[0].epochs > 1
    ended = [done[name] for name in finals if name in done and chooses]
    failed = [t.seed for t in cell.trials if scores.absent.get(t.id, "").startswith("failed")]
    shares = [share for name in finals if not math.isnan(share := _clipped(home, name))]
    searched = [_effort(home, name, done) for choice in cell.choices for one in choice.tried for name in _ids(one)]
    return FairRow(
        cell,
        chosen_of(cell),
        dict(defaults[0].point) if defaults else {},
        validation_of(cell, scores.rows),
        _sum(searched),
        _sum(_effort(home, name, done) for name in finals),
        fmean(shares) if shares else math.nan,
        tuple(sorted({*failed, *(trial.seed for trial in cell.trials if trial.id in scores.chance)})),
        (sum(row["selected_epoch"] == row["epochs"] for row in ended), len(ended)),
        scores.unequal_of(cell),
    )


def _effort(home: Home, trial_id: str, done: Mapping[str, Mapping[str, Any]]) -> Effort:
    """Return a trial's effort: from its record if it is finished, from its history if it was stopped or diverged."""
    if trial_id in done:
        return Effort(done[trial_id]["epochs"], done[trial_id]["train_seconds"])
    rows = list(home.trial(trial_id).rows())
    return Effort(len(rows), sum(row.get("seconds", 0.0) for row in rows))


def _sum(efforts: Iterable[Effort]) -> Effort:
    every = list(efforts)
    return Effort(sum(one.epochs for one in every), sum(one.seconds for one in every))


def _clipped(home: Home, trial_id: str) -> float:
    """Return a trial's share of clipped steps, averaged over epochs; NaN if its history is missing or too old."""
    shares = [row["clipped"] for row in home.trial(trial_id).rows() if "clipped" in row]
    return fmean(shares) if shares else math.nan


def _common_settings(rows: Iterable[FairRow]) -> dict[str, str]:
    """Return, by data set, the most common values of the unequal settings, as text; empty if no two cells agree."""
    texts = grouped((row.cell.dataset, _settings(row)) for row in rows)
    most = {dataset: Counter(of_data).most_common(1)[0] for dataset, of_data in texts.items()}
    return {dataset: text if count > 1 else "" for dataset, (text, count) in most.items()}


def _settings(row: FairRow) -> str:
    return _values(row.settings)


def _values(values: Mapping[str, Any]) -> str:
    """Format settings, e.g. `train.lr = 0.003, train.epochs = 9`; `--` if there are none."""
    return ", ".join(f"{name} = {setting_text(value)}" for name, value in values.items()) or NONE


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    """Format the values of these settings, e.g. `10, 0.003`; `--` if there are none."""
    return ", ".join(setting_text(values[name]) if name in values else NONE for name in names) if values else NONE


def _faults(row: FairRow, block: Sequence[FairRow], common: Mapping[str, str], scores: Scores) -> Iterator[Fault]:
    yield from _of_epochs(row, block)
    if row.settings and _settings(row) != common[row.cell.dataset]:
        yield Fault("equal-settings", f"{_settings(row)}, unlike other cells of its data set")
    yield from _of_search(row)
    if row.collapsed:
        yield Fault("no-collapse", f"at chance or failed: {_seeds(row.collapsed)} of {len(row.cell.trials)}")
    if row.last[1] and 2 * row.last[0] >= row.last[1]:
        yield Fault(
            "long-enough", f"the best epoch is the last in {row.last[0]} of {row.last[1]} seeds: may be undertrained"
        )
    shares = [other.clipped for other in block if not math.isnan(other.clipped)]
    if any(abs(row.clipped - share) > APART for share in shares):
        yield Fault(
            "equal-clipping",
            f"{row.clipped:.0%} of its steps are clipped; range in its block: {min(shares):.0%} to {max(shares):.0%}",
        )
    rules = {"leak": "train-apart-from-test", "tested validation": "val-apart-from-test"}
    for kind, what in scores.leaks_of(row.cell):
        yield Fault(rules[kind], f"trained with --allow-leak: {what}")


def _of_epochs(row: FairRow, block: Sequence[FairRow]) -> Iterator[Fault]:
    epochs = Counter(other.cell.trials[0].epochs for other in block)
    (most, count), own = epochs.most_common(1)[0], row.cell.trials[0].epochs
    if len(epochs) > 1 and (own != most or count == 1):
        others = " or ".join(str(number) for number in sorted(epochs) if number != own)
        yield Fault("equal-epochs", f"trains {own} epochs, others in its block {others}")
    shares = [other.share for other in block if not math.isnan(other.share)]
    if row.share < max(shares, default=0.0):
        yield Fault(
            "equal-epochs",
            f"its search trained {row.share:.0%} of the epochs of full search trials, another one in its block "
            f"{max(shares):.0%}",
        )


def _of_search(row: FairRow) -> Iterator[Fault]:
    """Return the faults of a cell's searches, without duplicates."""
    faults = dict[Fault, None]()
    for choice in row.cell.choices:
        if choice.missing.get("failed") or choice.missing.get("impossible"):
            faults[Fault("equal-points", f"chosen among {points(choice)} of {choice.draws} points")] = None
        if choice.default is None:
            faults[Fault("default-tried", "its search does not include the default")] = None
        if len(choice.possible) > 1 and not choice.candidates:
            faults[Fault("confirmed", "chosen by the search's own seed alone")] = None
        for name in choice.edges:
            value = setting_text(dict(choice.best.point)[name])
            faults[Fault("no-edge", f"the chosen {name} = {value} is at an edge of {choice.range(name)}")] = None
        if choice.earlier.trials:
            faults[Fault("no-earlier-search", _known(choice.earlier))] = None
    if (validation := row.validation) and not all(choice.best.default for choice in row.cell.choices):
        tried = [one.value for choice in row.cell.choices for one in choice.possible]
        default = validation.default if not math.isnan(validation.default) else median(tried)
        if validation.fresh < default:
            of = "the default" if not math.isnan(validation.default) else "its median point"
            faults[
                Fault(
                    "gain-holds",
                    f"validation {named(row.cell.choices[0].by)} {validation.search:.1f} in the search, "
                    f"{validation.fresh:.1f} on fresh seeds, below the {default:.1f} of {of}",
                )
            ] = None
    return iter(faults)


def _known(earlier: EarlierSearches) -> str:
    return f"test results of {earlier} were known when its search began"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _title(cell: Cell) -> str:
    return f"{cell.objective} by {block_title(cell.block)}"


def _keys(cell: Cell) -> dict[str, str]:
    """Return the keys of the cell's entries in a table."""
    return {name: str(value) for name, value in cell.axes.items()}


Column = Callable[[FairRow], str]


def _sheets(rows: Sequence[FairRow]) -> Iterator[Sheet]:
    searched = [row for row in rows if row.cell.choices]
    if searched:
        names = list(dict.fromkeys(name for row in searched for name in (*row.chosen, *row.default)))
        metric = named(searched[0].cell.choices[0].by)
        values: list[tuple[str, Column]] = [
            ("chosen", lambda row: _listed(row.chosen, names)),
            ("default", lambda row: _listed(row.default, names)),
            (f"{metric} in search", lambda row: _number(row, "search")),
            ("of default", lambda row: _number(row, "default")),
            ("gain", lambda row: _number(row, "gain")),
            ("on fresh seeds", lambda row: _number(row, "fresh")),
        ]
        yield _sheet(f"Chosen by validation: {', '.join(names)}", searched, values)
        costs: list[tuple[str, Column]] = [
            ("points", lambda row: " or ".join(dict.fromkeys(map(points, row.cell.choices)))),
            ("stopped", lambda row: str(row.stopped)),
            ("epochs of search", lambda row: str(row.searched.epochs)),
            ("hours", lambda row: row.searched.hours),
            ("epochs of table", lambda row: str(row.trained.epochs)),
            ("hours ", lambda row: row.trained.hours),
        ]
        yield _sheet("Cost of the search, and of the trials in the table", searched, costs)
    trained: list[tuple[str, Column]] = [
        ("epochs", lambda row: str(row.cell.trials[0].epochs)),
        ("clipped steps", lambda row: NONE if math.isnan(row.clipped) else f"{row.clipped:.0%}"),
        ("collapsed seeds", lambda row: ", ".join(map(str, row.collapsed)) or NONE),
        ("best epoch is last", lambda row: f"{row.last[0]} of {row.last[1]}" if row.last[1] else NONE),
        ("unequal settings", _settings),
    ]
    yield _sheet("Training of the trials in the table", rows, trained)


def _sheet(title: str, rows: Iterable[FairRow], columns: Sequence[tuple[str, Column]]) -> Sheet:
    lines = tuple((row.cell.objective, *(column(row) for _, column in columns)) for row in rows)
    return Sheet.telling(title, ("cell", *(head for head, _ in columns)), lines)


def _number(row: FairRow, name: str) -> str:
    value = getattr(row.validation, name)
    return NONE if math.isnan(value) else f"{value:+.1f}" if name == "gain" else f"{value:.1f}"
