"""Merge finished trials of another runs folder: each is verified, and finished trials here are never overwritten.

A trial is copied to a temporary folder next to its place, verified there, flushed to the disk with `done` last, and
renamed atomically: an interrupted merge leaves no partial trial, and the same command continues it.
"""

import errno
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from rich.filesize import decimal as size

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import LARGE, SMALL, UserError, check_known, counted, parsed_json, regular_bytes
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped
from goalgrid.grid.identity import trial_id
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.earlier_searches import take_earlier_searches
from goalgrid.grid.store.files import (
    aside_of,
    cannot_write,
    make_durable,
    read_json,
    readable_text,
    write_json,
    write_text,
)
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.grid.store.imported import add, imported_cells
from goalgrid.grid.store.saved_grid import read_grid, save_grid
from goalgrid.grid.trusted_code import Untrusted
from goalgrid.results.records import provenance
from goalgrid.state.data_at_hand import DataAtHand
from goalgrid.state.grid_state import GridState

COPIED = (
    "settings", "environment", "imported", "vocabulary", "history", "trace", "triplets", "pooling", "speed",
    "best_checkpoint", "record",
)  # fmt: skip
Outcome = Literal["taken", "same", "kept", "refused"]
"""same: already here, with equal results; kept: here with different results or in training, and not replaced."""


@dataclass(frozen=True)
class Merged:
    """The outcome of merging one finished trial of the other runs folder, with the reason."""

    trial: str
    outcome: Outcome
    why: str


IN_TRAINING: tuple[Outcome, str] = "kept", "it is being trained here"


def grids_of(
    other: Home, home: Home, name: str | None, roots: Sequence[str], leave: Callable[[str], None]
) -> list[Grid]:
    """Return the grids of the other runs folder, or only the one called `name`, with the data folders of this machine.

    `roots`: DATASET=DIR; each grid takes the folders of its own data sets.
    `leave`: called with the reason why a grid is skipped: it runs code that this user has not approved, or its file is
    damaged.

    Raises UserError if there is no such grid or data folder, or if the file of the grid called `name` is damaged.
    """
    names = other.grids()
    if not names:
        raise UserError(f"no grid has run under {other.path}: it is not a runs folder, or it is empty.")
    if name:
        check_known("grid", name, names, where=f"in {other.path}")
    if other.path.resolve() == home.path.resolve():
        raise UserError(f"{other.path} is the runs folder to merge into; give another folder, or another --runs.")
    grids, every = list[Grid](), list[str]()
    for known in [name] if name else names:
        try:
            grid = read_grid(known, other)
            here = read_grid(known, home).data if home.grid(known).grid.exists() else {}
        except UserError as error:
            if name and not isinstance(error, Untrusted):
                raise
            leave(str(error))
            continue
        placed = [*grid.datasets, *grid.evaluate.datasets]
        every += placed
        own = [root for root in roots if "=" not in root or root.partition("=")[0] in placed]
        grid = read_grid(known, other, roots=own) if own else grid
        for folder in map(grid.root, grid.datasets if own else ()):
            if folder and not folder.is_dir():
                raise UserError(f"--root: folder {folder} does not exist; merge needs it to compare the trials' data.")
        grids.append(grid if own else grid.model_copy(update={"data": {**grid.data, **here}}))
    for root in roots if every else ():
        if "=" in root:
            check_known("data set", root.partition("=")[0], sorted({*every}), where=f"in --root {root}")
    return grids


def merge(grid: Grid, other: Home, home: Home, *, stale: bool = False, take: bool = True) -> list[Merged]:
    """Copy the trials of a grid that are done in `other` but not in `home`; return the outcome of each.

    Args:
        stale: also take trials trained with code other than the code here; tables then mark them as stale.
        take: copy the trials; if False, only report what would be copied.
    """
    cells = expand(grid)
    imported = imported_cells(grid, other)
    cells += imported
    trials = [trial for trial in trials_of(cells) if other.trial(trial.id).state() is State.DONE]
    ids, today = {trial.id for trial in trials}, DataAtHand(grid, home).now
    code, data = (provenance.of_trials(cells, ids, fingerprint) for fingerprint in (today.code, today.data))
    data = {**_data_here(cells, home), **{key: mark for key, mark in data.items() if mark}}
    outcomes, here_now = dict[str, Merged](), set[str]()
    for trial in trials:  # parents come first
        missing = [parent for parent in trial.parents if parent not in here_now]
        of_code = "" if stale else code[trial.id]
        problem = partial(_problem, trial, grid.catalog, code=of_code, data=data.get(trial.id, ""))
        outcome = _outcome(home.trial(trial.id), other.trial(trial.id), other, missing, problem, take)
        outcomes[trial.id] = Merged(trial.id, *outcome)
        here_now |= {trial.id} if outcome[0] in ("taken", "same") else set()
    ran = home.grid(grid.name).grid.exists()
    if take and not ran and any(merged.outcome == "taken" for merged in outcomes.values()):
        save_grid(grid, GridState.of(grid, home).trials, home)
        ran = True
    for trial in trials_of(imported) if take and ran else ():
        if outcomes[trial.id].outcome != "refused":
            add(grid, home, trial.id)
    if take and ran:
        take_earlier_searches(grid.name, other, home)
    return list(outcomes.values())


def lines(grid: Grid, merges: Sequence[Merged], other: Home, home: Home, *, took: bool) -> list[str]:
    """Report the number of trials by outcome, then the trials that were not taken, by reason."""
    words: dict[Outcome, str] = {"taken": "taken" if took else "to take", "same": "here already"}
    words |= {"kept": "kept as here", "refused": "refused"}
    counts = Counter(merged.outcome for merged in merges)
    summary = ", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome])
    reasons = grouped((f"{merged.outcome}: {merged.why}", merged.trial) for merged in merges if merged.why)
    named = {*home.grid(grid.name).ids(), *home.grid(grid.name).imported_ids()}
    unnamed = {m.trial for m in merges if m.outcome == "taken"} - named
    add = f"{counted(len(unnamed), 'trial')} taken that grid {grid.name!r} here does not contain; add their axes to it"
    return [
        f"{grid.name}: {counted(len(merges), 'trial')} done in {other.path}{f': {summary}' if summary else ''}",
        *(f"  {reason} ({len(ids)}: {', '.join(ids)})" for reason, ids in reasons.items()),
        *([f"  {add}"] if took and unnamed else []),
    ]


def _outcome(
    here: TrialFolder,
    there: TrialFolder,
    other: Home,
    missing: Sequence[str],
    problem: Callable[[TrialFolder], str],
    take: bool,
) -> tuple[Outcome, str]:
    """Check a trial, and copy it if `take`; return its outcome and the reason. `missing`: parents that are not here."""
    if strange := next(_strange(there, other), ""):
        return "refused", strange
    if (latest := there.latest()) and latest.live():
        return "refused", "a process there still holds it"
    if here.state() is State.RUNNING:
        return IN_TRAINING
    if missing:
        return "refused", f"the trial it depends on was not taken: {missing[0]}"
    if take and not here.is_done():
        return _take(there, here, other, problem)
    if why := problem(there):
        return "refused", why
    if not here.is_done():
        return "taken", ""
    from goalgrid.results.records.record import differing

    try:
        columns = differing(here.record, there.record)
    except UserError as error:
        return "kept", f"done here, but {error}"
    return ("kept", f"done here with different {', '.join(columns)}") if columns else ("same", "")


def _take(
    there: TrialFolder, here: TrialFolder, other: Home, problem: Callable[[TrialFolder], str]
) -> tuple[Outcome, str]:
    from goalgrid.runners.trial import archive

    aside = aside_of(here.path)
    copy = TrialFolder(aside / here.trial_id)
    try:
        copy.attempts_folder.mkdir(parents=True)
        _check_room(aside, [there.done, *_files(there)])
        for path in _files(there):
            _copy(path, copy.path / path.relative_to(there.path))
        _copy(there.done, aside / "done")
        if why := problem(copy):
            return "refused", why
        when = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(copy.origin, {"from": str(other.path.absolute()), "merged": when}, durable=False)
        make_durable(copy.attempts_folder)
        make_durable(copy.path)
        write_text(copy.done, readable_text(aside / "done"))
        archive.replace(Home(here.path.parent.parent), here.trial_id)  # what was begun here
        copy.path.rename(here.path)
        make_durable(here.path.parent)
    except OSError as error:
        if here.state() is State.RUNNING:
            return IN_TRAINING
        raise cannot_write(here.path, error, "Trials taken before it are complete. ") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return "taken", ""


def _check_room(folder: Path, files: Sequence[Path]) -> None:
    """Raise an OSError if the disk of a folder has too little space for copies of these files."""
    wanted, free = sum(path.lstat().st_size for path in files), shutil.disk_usage(folder).free
    if wanted > free:
        raise OSError(errno.ENOSPC, f"copying a trial needs {size(wanted)}, but only {size(free)} are free")


def _copy(source: Path, target: Path) -> None:
    """Copy a file; raise OSError if it is a link or not a regular file, as it may have changed since the check."""
    target.parent.mkdir(exist_ok=True)
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file, target.open("wb") as copy:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, f"{source} is not a regular file")
        shutil.copyfileobj(file, copy)


def _files(folder: TrialFolder) -> Iterator[Path]:
    """Return the files of a finished trial, its further evaluations and the logs of its attempts, except `done`."""
    yield from (path for name in COPIED if os.path.lexists(path := getattr(folder, name)))
    yield from folder.evaluations.glob("*.parquet")
    yield from folder.attempts_folder.glob("[0-9]*")


def _strange(there: TrialFolder, other: Home) -> Iterator[str]:
    """Describe entries that are links, not regular files, outside that runs folder, or larger than allowed."""
    if not there.path.resolve().is_relative_to(other.path.resolve()):
        yield "its folder is a link out of that runs folder"
    elif linked := [path.name for path in (there.attempts_folder, there.evaluations) if path.is_symlink()]:
        yield f"{linked[0]} is a link"
    for path in (there.done, *_files(there)):
        status, name = path.lstat(), path.relative_to(there.path)
        most = LARGE if path.suffix in (".log", ".parquet") else SMALL
        if not stat.S_ISREG(status.st_mode):
            yield f"{name} is {'a link' if path.is_symlink() else 'not a regular file'}"
        elif path == there.best_checkpoint:
            yield from _no_checkpoint(path)
        elif status.st_size > most:
            yield f"{name} has {size(status.st_size)}; such files have at most {size(most)}"


def _no_checkpoint(path: Path) -> Iterator[str]:
    """Say why a file is not a complete checkpoint, checked by its checksum before it is copied."""
    from goalgrid.runners.training import checkpoints

    try:
        checkpoints.checksum(path)
    except checkpoints.Corrupt as error:
        yield f"its {path.name}: {str(error).rpartition(': ')[2]}"


def _problem(trial: Trial, known: Catalog, folder: TrialFolder, code: str, data: str) -> str:
    """Say why the trial in this folder must not be taken; empty if it may be.

    `code`, `data`: the fingerprints here; empty accepts any.
    """
    from goalgrid.results.records import checksummed, record

    try:
        checksummed.whole(folder.record, must=True)
        (row,) = record.collect([folder.record]).to_pylist()
    except FileNotFoundError:
        return "its record is missing"
    except (checksummed.Damaged, OSError) as error:
        return f"its record: {error}"
    except UserError as error:
        return str(error).partition(" Retrain its trial")[0]
    if problem := next(_disagreeing(trial, folder, row, known), ""):
        return problem
    if code and (differs := provenance.code_differs(row["code_fingerprint"], code)):
        return f"{differs.replace('older code', 'other code than here')}; with --stale it is taken, and tables mark it"
    then = row["data_fingerprint"]
    if data and data not in (then, then.partition("+")[0]):
        return f"trained on data that differs from the data here: {then}, here {data}"
    return ""


def _disagreeing(trial: Trial, folder: TrialFolder, row: Mapping[str, Any], known: Catalog) -> Iterator[str]:
    """Describe what in the folder disagrees with the record (protected by a checksum) or with the trial's id."""
    import torch

    from goalgrid.results.records.finished_trial import FinishedTrial
    from goalgrid.retrieval.words import text_readers
    from goalgrid.runners.training import checkpoints

    settings = json.loads(row["settings"])
    try:
        id_of_settings = trial_id(known.validated(TrialSettings, settings))
    except ValidationError as error:
        yield f"its settings do not fit this version: {error.errors()[0]['msg']}"
        return
    if id_of_settings != trial.id and not trial.shared.published:
        yield f"its settings are those of {id_of_settings}"
    if read_json(folder.settings) != settings:
        yield "settings.json disagrees with its record"
    noted, environment = json.loads(row["environment"]), read_json(folder.environment)
    if not environment or any(noted.get(key) != value for key, value in environment.items()):  # a record notes more
        yield "environment.json disagrees with its record"
    logged = {(entry["epoch"], entry["name"]): entry["value"] for entry in row["history"]}
    history = {(r["epoch"], name): float(v) for r in folder.rows() for name, v in r.items() if name != "epoch"}
    if history != logged:
        yield "history.jsonl disagrees with its record"
    finished = FinishedTrial(folder, row)
    try:
        if trial.epochs:
            finished.check_vocabulary(text_readers.fingerprint(parsed_json(regular_bytes(folder.vocabulary))))
            if folder.best_checkpoint.exists():
                finished.check_weights(checkpoints.load(folder.best_checkpoint, torch.device("cpu")))
            else:
                yield "its best.ckpt is missing"
    except (OSError, ValueError):
        yield "vocabulary.json cannot be read"
    except checkpoints.Corrupt as error:
        yield f"its best.ckpt: {str(error).rpartition(': ')[2]}"
    except UserError as error:
        yield str(error).partition(". Restore")[0]


def _data_here(cells: Sequence[Any], home: Home) -> dict[str, str]:
    """Map trial ids to the data fingerprint of finished trials here with the same data set and recipe."""
    from goalgrid.results.records.scores import Scores

    rows = Scores.read(cells, home, leave=lambda message: None).rows.values()
    seen = {(row["dataset"], row["recipe"]): row["data_fingerprint"] for row in rows}
    return {
        trial.id: data for cell in cells if (data := seen.get((cell.dataset, cell.recipe))) for trial in cell.trials
    }
