"""Provenance of results: library versions, machine, code and data, none of which enter trial ids; and stale trials.

A finished trial is stale if retraining it now might give different results. Stale trials are reported, and retrained
only on request.
"""

import hashlib
import json
import os
import platform
import re
import socket
import subprocess
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

import pydantic

from goalgrid.grid.errors import UserError, parsed_json, regular_bytes
from goalgrid.grid.expansion import Cell, Shared
from goalgrid.grid.identity import digest
from goalgrid.grid.plugins import PROGRAM
from goalgrid.grid.store.files import read_json, write_json
from goalgrid.results.records.sources import texts_of

T = TypeVar("T")
Rows = Mapping[str, Mapping[str, Any]]
"""Columns of the records of finished trials, by trial id."""

NUMERIC = ("torch", "numpy", "pillow", "transformers", "scikit-learn", "nltk")
"""Packages that can affect results: torch and numpy those of all trials, the others those of trials that load them."""

PACKAGES = ("goalgrid", *NUMERIC, "ray", "pyarrow")

DECIDING = {"python": 0, "numpy": 2}
"""Number of leading version components that may affect results; default: all. NumPy patches keep random streams."""

CODE_VERSION = "7:"
"""Prefix of code fingerprints: version of the hashing method. Fingerprints of different versions are incomparable."""

OTHER_CODE = "trained with older code"
OTHER_DATA = "trained on data that changed since"
DATA_VERSION = "2:"
"""Prefix of data fingerprints, like `CODE_VERSION` for code."""

UNTOLD_DATA = "recorded by a version that compared data differently, so changes cannot be detected"
UNTOLD_CODE = "recorded by a version that compared code differently, so changes cannot be detected"


@dataclass(frozen=True)
class Now:
    """Functions that return the current fingerprints of a cell's code and data (empty if the data are not here)."""

    code: Callable[[Shared], str]
    data: Callable[[Shared], str] = lambda shared: ""


COLUMNS = ("dataset", "recipe", "data_fingerprint", "code_fingerprint", "environment", "finished_at")
"""Columns of a record that `stale` reads."""

GIT_SECONDS = 2.0
KEPT_SOURCE = "source.json"
"""File in the package folder of a snapshot, which git does not track: the result of `source` in its checkout."""

STATES_KEPT = 16
"""Number of latest source states whose fingerprints are kept in the user's cache folder."""


Cause = Literal["code", "environment", "data", "record"]


@dataclass(frozen=True)
class Stale:
    """One reason why a finished trial is stale."""

    cause: Cause
    what: str
    """Description of the change, e.g. `torch 2.13.0 -> 2.14.0`."""


_Changed = tuple[str, str, str]
"""Package name, recorded version, and current version."""


def _decides(name: str, then: str, now: str) -> bool:
    """Return whether this version change may change the results of trials that load the package."""
    parts = DECIDING.get(name)
    return then.split(".")[:parts] != now.split(".")[:parts]


def environment(device: str, name: str, threads: int) -> dict[str, Any]:
    """Collect the facts that decide whether another run should reproduce the results.

    Args:
        device: device type used for training, `cpu` or `cuda`.
        name: name of the device; if empty, the CPU's name.
        threads: number of CPU threads.
    """
    return {
        "versions": {package: number for package in PACKAGES if (number := _version(package))},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "device": name or processor(),
        "device_type": device,
        "threads": threads,
        "source": source(),
    }


def made_by() -> dict[str, Any]:
    """Return the version of `goalgrid` and, in a checkout, the `commit` and whether it has uncommitted changes."""
    checkout = source() or {}
    commit = {"commit": checkout["commit"], "changed": checkout["dirty"]} if checkout else {}
    return {"goalgrid": _version(PROGRAM), **commit}


ROOMS = ("grid", "objectives", "retrieval", "results", "runners")
"""The program's subpackages; in a checkout they are links to folders next to the package."""


def rooms() -> dict[str, Path]:
    """Return the folders of the program's package and of its subpackages (which may be links), by dotted name."""
    spec = find_spec(PROGRAM)
    folder = Path(((spec and spec.submodule_search_locations) or [])[0])
    return {PROGRAM: folder, **{f"{PROGRAM}.{room}": folder / room for room in ROOMS}}


def versioned(code: str) -> str:
    return f"{CODE_VERSION}{code[:16]}"


@cache
def program() -> Mapping[str, bytes]:
    """Return the program's source code by module name, read once per process."""
    return texts_of(rooms())


@cache
def program_fingerprint() -> str:
    """Return a 16-digit hexadecimal hash of all sources, to verify that all nodes of a cluster run the same code."""
    state = hashlib.sha256()
    for name, text in sorted(program().items()):
        state.update(f"{name} {len(text)} ".encode() + text)
    return state.hexdigest()[:16]


def known_or_found(sources: str, key: object, find: Callable[[], str]) -> str:
    """Return a code fingerprint from the user's cache folder; if it is not there, compute it (about 1 s) and store it.

    Each cache file holds the fingerprints for one state of the sources. If it cannot be read or written, the
    fingerprint is computed each time.

    Args:
        sources: hash of all parsed sources.
        key: cache key; plain values.
        find: computes the fingerprint.
    """
    try:
        path = fingerprints_folder() / f"{digest([sources, platform.python_version(), pydantic.VERSION])}.json"
    except RuntimeError:  # this user has no home folder
        return find()
    known, entry = dict[str, str](), digest(key)
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = parsed_json(regular_bytes(path))
        if content["sha256"] == digest(content["found"]):
            known = content["found"]
    if entry not in known:
        known[entry] = find()
        with suppress(UserError, OSError):
            write_json(path, {"found": known, "sha256": digest(known)}, durable=False)
            for file in sorted(path.parent.glob("*.json"), key=lambda file: -file.stat().st_mtime)[STATES_KEPT:]:
                file.unlink(missing_ok=True)
    return known[entry]


def fingerprints_folder() -> Path:
    """Return `goalgrid/fingerprints` in the user's cache folder; raises RuntimeError if the user has no home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goalgrid" / "fingerprints"


@cache
def source() -> dict[str, Any] | None:
    """Return the `commit` of the source tree, and whether it is `dirty`; None if git does not track it."""
    folder = Path(__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    described = tracked and _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    if not described:
        return read_json(rooms()[PROGRAM] / KEPT_SOURCE) or None
    return {"commit": described.removesuffix("-dirty"), "dirty": described.endswith("-dirty")}


def stale(rows: Rows, cells: Sequence[Cell], now: Now) -> dict[str, list[Stale]]:
    """Return the finished trials of these cells that a rerun might not reproduce, keyed by id, with all reasons.

    Args:
        rows: records of the finished trials, with `COLUMNS`, by id.
        cells: cells that these trials belong to.
        now: returns the current code and data fingerprints.
    """
    code, data = of_trials(cells, rows, now.code), of_trials(cells, rows, now.data)
    libraries = of_trials(cells, rows, attrgetter("libraries"))
    of_now = [row for key, row in rows.items() if not is_other(row["data_fingerprint"], data[key])]
    ordered = sorted(of_now, key=lambda row: str(row["finished_at"]))
    latest = {(row["dataset"], row["recipe"]): evaluated_data(row["data_fingerprint"]) for row in ordered}
    by_trial = {key: _reasons(row, code[key], data[key], libraries[key], latest) for key, row in rows.items()}
    return {trial_id: reasons for trial_id, reasons in by_trial.items() if reasons}


def of_trials(cells: Iterable[Cell], done: Container[str], read: Callable[[Shared], T]) -> dict[str, T]:
    """Map the id of each finished trial to a value computed from its cell's settings, e.g. the code fingerprint."""
    values: dict[str, T] = {}
    for cell in cells:
        if ids := [trial.id for trial in cell.trials if trial.id in done]:
            values |= dict.fromkeys(ids, read(cell.trials[0].shared))
    return values


def code_differs(then: str, now: str) -> str:
    """Describe how a record's code differs from the current code, by fingerprint; empty if they are the same."""
    if then == now:
        return ""
    return OTHER_CODE if then.startswith(CODE_VERSION) else UNTOLD_CODE


def of_other_data(rows: Rows, cells: Iterable[Cell], now: Callable[[Shared], str]) -> set[str]:
    """Return the ids of finished trials whose data changed; unknown cases are excluded."""
    data = of_trials(cells, rows, now)
    return {trial_id for trial_id, row in rows.items() if is_other(row["data_fingerprint"], data[trial_id])}


def evaluated_data(fingerprint: str) -> str:
    """Return a data fingerprint without the hash of the columns that only a trial's objective reads.

    >>> evaluated_data("2:0123~89ab+4567")
    '2:0123+4567'
    """
    return re.sub(r"~[0-9a-f]+", "", fingerprint)


def is_other(then: str, now: str) -> bool:
    """Return whether a record's data differ from the current data, by fingerprint; False if unknown."""
    return bool(now) and then.startswith(DATA_VERSION) and then.partition("+")[0] != now


def _reasons(
    row: Mapping[str, Any], code: str, data: str, libraries: Collection[str], latest: Mapping[tuple[str, str], str]
) -> list[Stale]:
    reasons = []
    if what := code_differs(row["code_fingerprint"], code):
        reasons.append(Stale("code", what))
    changed = _changed(json.loads(row["environment"]), ("torch", "numpy", *sorted(libraries)))
    if what := _listed(version for version in changed if _decides(*version)):
        reasons.append(Stale("environment", what))
    then, newest = row["data_fingerprint"], latest.get((row["dataset"], row["recipe"]))
    if is_other(then, data):
        reasons.append(Stale("data", f"{OTHER_DATA}: {then} -> {data}"))
    elif data and not then.startswith(DATA_VERSION):
        reasons.append(Stale("data", UNTOLD_DATA))
    elif evaluated_data(then) != newest:
        reasons.append(Stale("data", f"trained on older data than the latest trial: {then} -> {newest}"))
    return reasons


def patched(rows: Rows) -> dict[str, str]:
    """Return the version changes that do not affect results, by the ids of the finished trials."""
    changed = {trial_id: _changed(json.loads(row["environment"]), DECIDING) for trial_id, row in rows.items()}
    words = {
        trial_id: _listed(version for version in some if not _decides(*version)) for trial_id, some in changed.items()
    }
    return {trial_id: text for trial_id, text in words.items() if text}


def _listed(versions: Iterable[_Changed]) -> str:
    return ", ".join(f"{name} {then} -> {now}" for name, then, now in versions)


def _changed(environment: Mapping[str, Any], packages: Iterable[str]) -> list[_Changed]:
    """Return the packages whose version changed; versions that are not in the record are not compared."""
    before = {**environment.get("versions", {}), "python": environment.get("python")}
    now = {name: platform.python_version() if name == "python" else _version(name) for name in packages}
    return [(name, before[name], str(now[name])) for name in now if before.get(name) not in (None, now[name])]


def elsewhere(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences between two environments that may change rounding: versions, machine, device and threads.

    A different host counts even if its CPU has the same name: a virtual machine may hide some CPU instructions.
    """
    rounding = ("host", "platform", "device", "device_type", "threads")
    return [
        *(_listed([version]) for version in _changed(then, ("python", *NUMERIC))),
        *(f"{name} {then.get(name, 'unknown')} -> {now[name]}" for name in rounding if then.get(name) != now[name]),
    ]


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def tracked(folder: Path, names: Sequence[str]) -> list[str]:
    """List the files in the subfolders `names` of `folder` that git tracks, or that are untracked but not ignored."""
    listed = _git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *names) or ""
    return [*filter(None, listed.split("\0"))]


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if git fails, is not installed, or takes too long."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.strip()


@cache
def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
