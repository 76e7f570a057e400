"""A paper's table, filled with the scores of finished trials, of whichever grids these are."""

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
"""VSE+2AD's operating items a second, as multiples of the slowest row's."""
LISTED = 6
APART = "A grid no longer counts once its folder is moved out of grids/ in the runs folder."

GridCells = tuple[Grid, Sequence[Cell]]


class Quoted(Printed):
    """A number of the paper where no trial here can have one."""

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
    """The id that its trial has with seed 0: equal for cells that differ in their seeds alone."""

    def done(self, scores: Scores) -> list[str]:
        return [trial.id for trial in self.cell.trials if trial.id in scores.rows]


@dataclass(frozen=True)
class Filled(Paper):
    """The rows of the paper with our scores. The cell of a row has no trials; `ours` has them."""

    scores: Scores
    ours: Mapping[Cell, Cell]
    trained: frozenset[Cell]
    """Rows that shipped grids train: if their trials are missing, they have no number."""
    differs: Mapping[Cell, tuple[str, ...]]
    """How the training of a row differs from the source of the paper's numbers, or why the row is undecided."""
    undecided: frozenset[Cell]
    """Rows without a score since trials with different settings could fill them."""
    untrained: int
    """Trials that `goalgrid run --paper` trains: those of the table's first shipped grid that are not done."""
    quoting: bool = True
    """Whether to show the paper's numbers that no trial here can have."""

    def of(self, cell: Cell, metric: str) -> TableValue:
        """Return our score by the protocol of the printed number; else the printed number, marked as quoted."""
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
        """Queries a second of each row over those of the slowest; empty unless one device measured them all."""
        rows = [cell for cell, row in self.rows.items() if OIPS in row and row[OIPS].value.text != "--"]
        speeds = {cell: self.scores.of_model(self.ours[cell], "queries") for cell in rows if cell in self.ours}
        whole = rows and len(speeds) == len(rows) and not any(math.isnan(speed.value) for speed in speeds.values())
        if not whole or not self.scores.models or len(self.scores.models.devices) > 1:
            return {}
        slowest = min(speed.value for speed in speeds.values())
        return {cell: Multiple(speed.value / slowest, speed.trials) for cell, speed in speeds.items()}

    @property
    def speed_note(self) -> str:
        """Note on the speeds and the devices that measured them; empty: none is shown."""
        if not self._multiples or not self.scores.models:
            return ""
        return f"#OIPs: queries answered a second over those of the slowest row, on {self.scores.models.devices[0]}."

    @property
    def values(self) -> list[TableValue]:
        """Return the values in the places of the paper's numbers."""
        numbers = ((cell, result) for cell, row in self.rows.items() for result in row.values())
        return [self.of(cell, result.metric) for cell, result in numbers if result.value.text != "--"]

    @property
    def measured(self) -> list[Score]:
        """Our values among them, also those whose trials are missing."""
        return [value for value in self.values if isinstance(value, Score) and value.expected]

    @property
    def used(self) -> list[Cell]:
        return [cell for cell in self.ours.values() if any(trial.id in self.scores.rows for trial in cell.trials)]


def fill(
    name: str, shipped: Sequence[GridCells], saved: Sequence[GridCells], home: Home, now: provenance.Now, leave: Leave
) -> Filled:
    """Fill the table with our scores: of the cells that have a row's data set, recipe and objective.

    Cells that differ in their seeds alone are one. Of cells with other differences, the one of the shipped grid that
    trains the row counts, else the one with the recipe's settings; if neither decides, the row has no score, and a note
    says why. Trials of other code count only if all trials of a cell are. `leave` takes messages about what is left
    out.

    UserError: trials of one data set saw different data.
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
    """Return the cells of a grid that belong to some row; not its published checkpoints, which come last.

    No cell that chose settings for itself: the papers print none.
    """
    if grid.select or places.isdisjoint(map(place_of, cells)):
        return []
    first = expand(grid.model_copy(update={"seeds": [0], "budget": None}))
    pairs = zip(cells, first, strict=False)
    return [Candidate(grid.name, cell, cells, of.trials[0].id) for cell, of in pairs if place_of(cell) in places]


def _of_one_code(scores: Scores, candidates: Iterable[Candidate]) -> Scores:
    """Without the trials of other code that share a cell with trials of the code of now."""
    groups = grouped((candidate.settings, trial_id) for candidate in candidates for trial_id in candidate.done(scores))
    remarks = scores.code_differs(candidate.cell for candidate in candidates)
    other = {trial_id for trial_id, remark in remarks.items() if remark}
    out = {trial_id for group in groups.values() if not other.issuperset(group) for trial_id in group} & other
    rows = {trial_id: row for trial_id, row in scores.rows.items() if trial_id not in out}
    return replace(scores, rows=rows, absent={**scores.absent, **dict.fromkeys(out, provenance.OTHER_CODE)})


def _fitting(shipped: Sequence[Candidate], others: Sequence[Candidate], scores: Scores) -> Sequence[Candidate]:
    """The candidate whose trials fill a row, with the finished trials of all that have its settings; or none.

    Those of the shipped grids that train the row are `shipped`. Several candidates: none comes before the others.
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
    """`epochs 2 in place of 30`: in what it differs from another candidate."""
    return difference_text([differing(candidate.cell, other.cell)]) or "settings of the trials that it starts from"


def _odd_splits(seen: provenance.Rows, trials: Iterable[str]) -> Iterator[str]:
    """How the splits that trials saw differ in size from the official ones, as their records say."""
    for row in (seen[trial_id] for trial_id in trials if trial_id in seen):
        for split, size in json.loads(row["environment"]).get("splits", {}).items():
            if odd := catalog.odd_size(row["dataset"], split, *size):
                yield f"{split} split: {odd}"


def _left_out(filled: Filled, candidates: Iterable[Candidate]) -> dict[str, dict[str, None]]:
    """Ids of trials that are done and not shown, by reason."""
    scores, others = filled.scores, (provenance.OTHER_DATA, provenance.OTHER_CODE)
    ids = dict.fromkeys(trial.id for candidate in candidates for trial in candidate.cell.trials)
    absent = [(scores.absent.get(trial_id, ""), trial_id, None) for trial_id in ids]
    missing = [(reason, trial_id, None) for score in filled.measured for trial_id, reason in score.missing]
    return nested([part for part in absent if part[0] in others] + [part for part in missing if part[1] in scores.rows])
