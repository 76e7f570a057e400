"""Fills a paper's table with the scores of finished trials from any grids."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from goalgrid.grid import catalog
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.store.home import Home
from goalgrid.results.records import provenance, record, record_cache
from goalgrid.results.records.scores import Multiple, Score, Scores, TableValue, refuse_mixed_data
from goalgrid.results.records.steps import Leave
from goalgrid.results.reference.coverage import Place, paper_rows, place_of
from goalgrid.results.reference.differences import differences
from goalgrid.results.reference.matching import changes, difference_text, differing
from goalgrid.results.reference.reading import Paper, Printed, cell_of, paper_table

QUOTED = "‡"
OIPS = "oips"
"""VSE+2AD's operating items per second (#OIPs), as a multiple of the slowest row's."""
LISTED = 6
APART = "To exclude a grid, move its folder out of grids/ in the runs folder."

GridCells = tuple[Grid, Sequence[Cell]]


class Quoted(Printed):
    """A number quoted from the paper, for a cell that no trial here can fill."""

    @property
    def text(self) -> str:
        return super().text + (QUOTED if self.printed != "-" else "")


@dataclass(frozen=True)
class Candidate:
    """A cell that may fill a row, and all cells of its grid."""

    grid: str
    cell: Cell
    cells: Sequence[Cell]
    settings: str
    """Trial id of the cell with seed 0; equal for cells that differ only in their seeds."""

    def done(self, scores: Scores) -> list[str]:
        return [trial.id for trial in self.cell.trials if trial.id in scores.rows]


@dataclass(frozen=True)
class Filled(Paper):
    """A paper's rows with our scores. The cells in `rows` have no trials; `ours` maps them to cells with trials."""

    scores: Scores
    ours: Mapping[Cell, Cell]
    trained: frozenset[Cell]
    """Rows that shipped grids train; if their trials are missing, they show no number."""
    differs: Mapping[Cell, tuple[str, ...]]
    """How a row's training differs from the source of the paper's numbers, or why the row is undecided."""
    undecided: frozenset[Cell]
    """Rows without a score because trials with different settings could fill them."""
    untrained: int
    """Number of unfinished trials of the table's first shipped grid, which `goalgrid run --paper` trains."""
    quoting: bool = True
    """Whether to show the paper's numbers for cells that no trial here can fill."""

    def of(self, cell: Cell, metric: str) -> TableValue:
        """Return our score for the printed number's protocol; if there is none, the printed number marked as quoted."""
        result, ours = self.rows[cell][metric], self.ours.get(cell)
        if metric == OIPS and cell in self._multiples:
            return self._multiples[cell]
        if ours and metric in record.METRICS:
            score = self.scores.of(ours, metric, result.protocol)
            if score.n or cell in self.trained:
                return score
        return Quoted(result.value.printed, result.value.n) if self.quoting else Score((), expected=0)

    def axes(self, cell: Cell) -> dict[str, str]:
        texts = self.differs.get(cell)
        return super().axes(cell) | ({"differs": "; ".join(texts)} if texts else {})

    @cached_property
    def _multiples(self) -> dict[Cell, Multiple]:
        """Queries per second of each row, relative to the slowest; empty unless all were measured on one device."""
        rows = [cell for cell, row in self.rows.items() if OIPS in row and row[OIPS].value.text != "--"]
        speeds = {cell: self.scores.of_model(self.ours[cell], "queries") for cell in rows if cell in self.ours}
        whole = rows and len(speeds) == len(rows) and not any(math.isnan(speed.value) for speed in speeds.values())
        if not whole or not self.scores.models or len(self.scores.models.devices) > 1:
            return {}
        slowest = min(speed.value for speed in speeds.values())
        return {cell: Multiple(speed.value / slowest, speed.trials) for cell, speed in speeds.items()}

    @property
    def speed_note(self) -> str:
        """Note on the speeds and their device; empty if no speeds are shown."""
        if not self._multiples or not self.scores.models:
            return ""
        return f"#OIPs: queries answered per second, relative to the slowest row, on {self.scores.models.devices[0]}."

    @property
    def values(self) -> list[TableValue]:
        """The values shown in place of the paper's numbers."""
        numbers = ((cell, result) for cell, row in self.rows.items() for result in row.values())
        return [self.of(cell, result.metric) for cell, result in numbers if result.value.text != "--"]

    @property
    def measured(self) -> list[Score]:
        """Our scores among `values`, including those whose trials are missing."""
        return [value for value in self.values if isinstance(value, Score) and value.expected]

    @property
    def used(self) -> list[Cell]:
        return [cell for cell in self.ours.values() if any(trial.id in self.scores.rows for trial in cell.trials)]


def fill(
    name: str, shipped: Sequence[GridCells], saved: Sequence[GridCells], home: Home, now: provenance.Now, leave: Leave
) -> Filled:
    """Fill a paper's table with our scores, from cells that match a row's data set, recipe and objective.

    Cells that differ only in their seeds are merged. If several cells match, the one from the shipped grid that trains
    the row is used, else the one with the recipe's own settings; if neither decides, the row has no score and a note
    gives the reason. Trials with older code are used only if all trials of a cell have older code.

    Args:
        name: name of the table.
        shipped: shipped grids that name the table, with their cells.
        saved: grids in the runs folder, with their cells.
        home: the runs folder.
        now: current code and data fingerprints.
        leave: takes messages about trials and rows that are left out.

    Raises:
        UserError: no table has this name, or trials of one data set saw different data.
    """
    paper = Paper.read(name)
    every_row = zip(paper_rows(name, shipped), paper_table(name).rows(name), strict=True)
    rows = [(row, results) for row, results in every_row if not results[0].line.not_possible]
    used = {grid for row, _ in rows for grid in row.grids}
    places = {place_of(result) for _, results in rows for result in results}
    of_shipped = [c for grid, cells in shipped if grid.name in used for c in _candidates(grid, cells, places)]
    others = [c for grid, cells in saved for c in _candidates(grid, cells, places)]
    every = [*of_shipped, *others]
    scores = Scores.read([c.cell for c in every], home, now=now, leave=leave, mixed=True)
    scores = _of_one_code(scores, every)
    ours, trained, differs = dict[Cell, Cell](), set[Cell](), dict[Cell, tuple[str, ...]]()
    undecided, seen = set[Cell](), record_cache.rows(home, scores.rows, ["dataset", "environment"])
    for row, results in rows:
        for cell, result in {cell_of(result): result for result in results}.items():
            theirs = [c for c in of_shipped if c.grid in row.grids and place_of(c.cell) == place_of(result)]
            fitting = _fitting(theirs, [c for c in others if place_of(c.cell) == place_of(result)], scores)
            if theirs:
                trained.add(cell)
            if len(fitting) > 1:
                ids = " and ".join(f"{candidate.done(scores)[0]} of grid {candidate.grid!r}" for candidate in fitting)
                why = f"not filled, since trials differ in {_changed(fitting[0], fitting[1])}"
                leave(f"row {row.label!r}: {why}: {ids}. {APART}")
                differs[cell] = (why,)
                undecided.add(cell)
            for chosen in fitting if len(fitting) == 1 else theirs[:1]:
                ours[cell] = chosen.cell
                if chosen.done(scores):
                    one_point = [of for of in chosen.cells if of.swept == chosen.cell.swept]
                    notes = differences(results, one_point)
                    differs[cell] = (*notes, *dict.fromkeys(_odd_splits(seen, chosen.done(scores))))
    trials = next((trials_of(cells) for grid, cells in shipped if name in grid.tables), [])
    untrained = sum(not home.trial(trial.id).is_done() for trial in trials)
    filled = Filled(name, paper.rows, scores, ours, frozenset(trained), differs, frozenset(undecided), untrained)
    refuse_mixed_data(scores.rows[t.id] for cell in filled.used for t in cell.trials if t.id in scores.rows)
    for reason, out in _left_out(filled, every).items():
        more = f" and {len(out) - LISTED:,} more" if len(out) > LISTED else ""
        leave(f"{counted(len(out), 'trial')} {reason}: {', '.join(list(out)[:LISTED])}{more}")
    return filled


def _candidates(grid: Grid, cells: Sequence[Cell], places: set[Place]) -> list[Candidate]:
    """Return the trained cells of a grid that match some row; published checkpoints are excluded.

    A grid with [select] has no candidates: the papers report no cells with settings chosen by validation.
    """
    if grid.select or places.isdisjoint(map(place_of, cells)):
        return []
    first = expand(grid.model_copy(update={"seeds": [0], "budget": None}))
    pairs = zip(cells, first, strict=False)
    return [Candidate(grid.name, cell, cells, of.trials[0].id) for cell, of in pairs if place_of(cell) in places]


def _of_one_code(scores: Scores, candidates: Iterable[Candidate]) -> Scores:
    """Return the scores without trials of older code whose cell also has trials of the current code."""
    groups = grouped((candidate.settings, trial_id) for candidate in candidates for trial_id in candidate.done(scores))
    remarks = scores.code_differs(candidate.cell for candidate in candidates)
    other = {trial_id for trial_id, remark in remarks.items() if remark}
    out = {trial_id for group in groups.values() if not other.issuperset(group) for trial_id in group} & other
    rows = {trial_id: row for trial_id, row in scores.rows.items() if trial_id not in out}
    return replace(scores, rows=rows, absent={**scores.absent, **dict.fromkeys(out, provenance.OTHER_CODE)})


def _fitting(shipped: Sequence[Candidate], others: Sequence[Candidate], scores: Scores) -> Sequence[Candidate]:
    """Return the candidate that fills a row, merged with all finished trials with the same settings.

    Empty if there is none; several candidates if none takes precedence. `shipped`: candidates from the shipped grids
    that train the row.
    """
    by_settings: dict[str, Candidate] = {}
    for candidate in (*shipped, *others):
        first = by_settings.setdefault(candidate.settings, candidate)
        trials = {trial.id: trial for trial in (*candidate.cell.trials, *first.cell.trials)}
        more = [trials[name] for name in candidate.done(scores) if trials[name] not in first.cell.trials]
        by_settings[candidate.settings] = replace(first, cell=replace(first.cell, trials=(*first.cell.trials, *more)))
    done = [candidate for candidate in by_settings.values() if candidate.done(scores)]
    published = [candidate for candidate in done if not changes([candidate.cell])]
    preferred = [candidate for candidate in done if shipped and candidate.settings == shipped[0].settings]
    return preferred[:1] or (published if len(published) == 1 else done or shipped[:1])


def _changed(candidate: Candidate, other: Candidate) -> str:
    """Describe how a candidate differs from another, e.g. `epochs 2 in place of 30`."""
    return difference_text([differing(candidate.cell, other.cell)]) or "settings of the trials that it starts from"


def _odd_splits(seen: provenance.Rows, trials: Iterable[str]) -> Iterator[str]:
    """Yield how the recorded split sizes of trials differ from the official ones."""
    for row in (seen[trial_id] for trial_id in trials if trial_id in seen):
        for split, size in json.loads(row["environment"]).get("splits", {}).items():
            if odd := catalog.odd_size(row["dataset"], split, *size):
                yield f"{split} split: {odd}"


def _left_out(filled: Filled, candidates: Iterable[Candidate]) -> dict[str, dict[str, None]]:
    """Return the ids of finished trials that are not shown, by reason."""
    scores, others = filled.scores, (provenance.OTHER_DATA, provenance.OTHER_CODE)
    ids = dict.fromkeys(trial.id for candidate in candidates for trial in candidate.cell.trials)
    absent = [(scores.absent.get(trial_id, ""), trial_id, None) for trial_id in ids]
    missing = [(reason, trial_id, None) for score in filled.measured for trial_id, reason in score.missing]
    return nested([part for part in absent if part[0] in others] + [part for part in missing if part[1] in scores.rows])
