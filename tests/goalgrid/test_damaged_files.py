"""A runs folder damaged in two ways: files and folders that are not what they were, and calls of the system that fail.

Whatever it is, a command ends with a message and without a traceback, sound trials are shown and kept, and once the
damage is taken away, the same command gives what it gives undisturbed.

The damage is to a file or folder of the runs folder, to a grid file or to the data. A command that fails names its seed
and draw: `GOALGRID_DRAWS=1000 GOALGRID_SEED=7 pytest -n 0 -m slow tests/goalgrid/test_damaged_files.py` makes 1,000
draws of seed 7 of each way, and `GOALGRID_DRAW=12` the twelfth of them alone.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record_cache
from goalgrid.results.records.record import differences

from ..conftest import Goalgrid
from ..failing_disk.commands import HUNG, Call, Commands, Fault
from .damaged_runs import GridRuns, Runs, digests, entries, files, kinds, made, others, owner

FAST = (
    "plan GRID", "status NAME", "status NAME --json", "table NAME", "table NAME --format csv", "effects NAME", "prune",
    "prune --yes", "prune --done --yes", "resume NAME --here --mlflow-uri=", "plan GRID --trials", "run GRID --here",
    "run GRID --here --stale --mlflow-uri=", "compare NAME --other-runs WHOLE", "evaluate --trial DONE", "merge WHOLE",
    "merge HOME", "merge WHOLE --dry-run",
)  # fmt: skip
SLOW = ("export NAME OUTPUT/export", "report NAME", "figures NAME --output OUTPUT/figures")
"""Verbs that draw figures, which takes seconds."""
CHANGING = ("run GRID", "resume", "merge WHOLE")
CODES = {"damaged": {"status": 4, "prune": 2}, "searched": {"status": 3, "prune": 2}}
"""How verbs end undisturbed, where not with 0: a trial failed or was interrupted; nobody is there to ask."""
FAILED = "bug: RuntimeError: made to fail"
"""Why a trial had failed before."""
RUN = "run GRID --here --mlflow-uri="
"""The last verb of every draw."""
STALE = f"{RUN} --stale"
"""The last verb after other data were here."""
OUTSIDE = ("data", "whole", "outside")
"""What no command may change, beside the runs folder."""
SECONDS = 300
"""After this time, a command counts as hanging; undisturbed, it takes less than one, or thirty to draw figures."""

DRAW = random.Random()
"""Draws the damages; the printed seed begins it."""


def instead(make: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    """Something else in the place of a file or folder."""

    def damage(path: Path, other: Path) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if path.name != "done" or make == make_folder:  # which counts by its name alone, as the only file of a trial
            make(path)

    return damage


def make_folder(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def rewritten(change: Callable[[bytes, bytes], bytes]) -> Callable[[Path, Path], None]:
    def damage(path: Path, other: Path) -> None:
        path.write_bytes(change(path.read_bytes(), other.read_bytes()))

    return damage


def one_bit(content: bytes, _: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    place = DRAW.randrange(len(changed))
    changed[place] ^= 1 << DRAW.randrange(8)
    return bytes(changed)


INSTEAD: dict[str, Callable[[Path, Path], None]] = {
    "a folder in its place": instead(make_folder),
    "a named pipe in its place": instead(os.mkfifo),
    "a link to nothing": instead(lambda path: path.symlink_to(path.parent / "nothing")),
    "a link to itself": instead(lambda path: path.symlink_to(path)),
    "a link to zeros without end": instead(lambda path: path.symlink_to("/dev/zero")),
    "gone": instead(lambda path: None),
}
"""Damages of files and folders."""
DAMAGES = INSTEAD | {
    "cut in half": rewritten(lambda content, _: content[: len(content) // 2]),
    "without its last byte": rewritten(lambda content, _: content[:-1]),
    "empty": rewritten(lambda *_: b""),
    "zeros": rewritten(lambda content, _: bytes(len(content))),
    "a flipped bit": rewritten(one_bit),
    "JSON without end": rewritten(lambda *_: b"[" * 100_000),
    "not UTF-8": rewritten(lambda content, _: b"\xff\xfe\x80" + content[3:]),
    "other content": rewritten(lambda _, other: other),
    "twice": rewritten(lambda content, _: content + content),
    "zeros at the end": rewritten(lambda content, _: content[: -len(content) // 4] + bytes(len(content) // 4)),
}

ERRORS = {
    Call.LIST: (errno.EIO, errno.ESTALE, errno.EACCES),
    Call.STAT: (errno.EIO, errno.ESTALE, errno.EACCES),
    Call.OPEN: (errno.EIO, errno.ESTALE, errno.EACCES),
    Call.READ: (errno.EIO, errno.ESTALE),
    Call.CREATE: (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES),
    Call.WRITE: (errno.ENOSPC, errno.EIO, errno.ESTALE),
    Call.SYNC: (errno.ENOSPC, errno.EIO),
    Call.CLOSE: (errno.ENOSPC, errno.EIO, errno.ESTALE),
    Call.RENAME: (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES),
    Call.LINK: (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES),
    Call.MKDIR: (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES),
    Call.UNLINK: (errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES),
    Call.CREATE | Call.RENAME | Call.LINK | Call.MKDIR | Call.UNLINK: (errno.EROFS,),
    Call.CREATE | Call.WRITE | Call.LINK | Call.MKDIR: (errno.ENOSPC,),
    Call.LIST | Call.STAT | Call.OPEN | Call.CREATE | Call.RENAME: (errno.EACCES, errno.ESTALE, errno.EIO),
}
"""The calls that fail together, with the errors that they give."""


@pytest.fixture(scope="module")
def few_records() -> Iterator[None]:
    """A few records count as many, so that there are summaries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_cache, "FEW", 1)
        yield


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
    commands: Commands,  # imports meanwhile
    goalgrid: Goalgrid,
    few_records: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Runs:
    """Where the request says "all", with MLflow's database and a report, which take seconds."""
    return made(tmp_path_factory.mktemp("damaged"), goalgrid, everything=request.param == "all")


@dataclass
class Draw:
    """A damaged copy of the runs folder, and what is wrong with the commands given there.

    Args:
        grid: that the commands name.
        of: the trial that the damage concerns; empty: more than one.
    """

    runs: Runs
    commands: Commands
    home: Path
    grid: GridRuns
    of: str
    what: str = ""
    said: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def into(self) -> Path:
        """The runs folder that takes trials from the damaged one."""
        return self.home.with_name(f"{self.home.name}-into")

    def give(self, command: str, fault: Fault | None = None, *, tracked: bool = False) -> int:
        """Give a command, and check that it ends with a message and changes nothing that it should not.

        Args:
            tracked: with MLflow's mirror, which takes seconds.
        """
        grid = self.grid
        places = {"GRID": grid.file, "NAME": grid.name, "WHOLE": self.runs.undisturbed.path, "HOME": self.home}
        places["DONE"] = next(iter(grid.lines))
        words = command.replace("OUTPUT", f"{self.home}-output").split()
        words = [str(places.get(word, word)) for word in words]
        if words[0] == "run" and not tracked and "--mlflow-uri=" not in words:
            words.append("--mlflow-uri=")
        before = digests(self.home), digests(self.runs.place, *OUTSIDE)
        runs = self.into if "HOME" in command else self.home
        ended = self.commands(*words, runs=runs, fault=fault, seconds=SECONDS)
        said = ended.stdout + ended.stderr
        self.said += said
        if "Traceback" in said or "bug:" in ended.stderr.replace(FAILED, "") or ended.returncode not in (0, 2, 3, 4):
            code = "hung" if ended.returncode == HUNG else f"exit {ended.returncode}"
            self.note(f"{command}: {code}: {said[-2500:]}")
        if ended.returncode and not said.strip():
            self.note(f"{command}: exit {ended.returncode} without a word")
        self._kept(command, *before)
        if self.of and not command.startswith(CHANGING):
            self._shown(command, ended.stdout)
        return ended.returncode

    def note(self, problem: str) -> None:
        self.wrong.append(f"{self.what}: {problem}")

    def _kept(self, command: str, before: dict[str, str], outside: dict[str, str]) -> None:
        """Check that no record of a sound trial and nothing outside is changed; by a command that reads, nothing."""
        after, reads = digests(self.home), not command.startswith(CHANGING)
        for path in (path for path in before if path.startswith("trials/") and Path(path).parts[1] != self.of):
            finished = f"trials/{Path(path).parts[1]}/done" in before
            counts = reads or (finished and path.endswith(("/record.parquet", "/done")))
            if counts and not path.endswith(".corrupt") and before[path] != after.get(path):  # prune removes these
                self.note(f"{command} changed {path}")
        if outside != digests(self.runs.place, *OUTSIDE):
            self.note(f"{command} changed files outside of the runs folder")

    def _shown(self, command: str, printed: str) -> None:
        """Check that a command shows the finished trials that are sound, or names the trial that it cannot read."""
        sound = [trial for trial in self.grid.lines if trial != self.of]
        named = self.of in self.said or "no trial with chosen values is done" in self.said  # a folder that is gone
        if self.of not in self.grid.lines and self.of in self.grid.done and named:
            return  # a trial of the search, by which the shown ones are chosen
        if command == "table NAME --format csv":
            lost = [trial for trial in sound if not set(self.grid.lines[trial]) <= set(printed.splitlines())]
        elif command.startswith(("status", "plan", "table", "effects", "compare")):
            lost = [] if printed.strip() else sound
        else:
            return
        if lost:
            self.note(f"{command} does not show {lost}: {self.said[-900:]}")

    def gives(self, without: str = "") -> list[str]:
        """In what the grid's trials differ from those of an undisturbed run, but for this trial."""
        cells = others(self.grid.points, without)
        try:
            return differences(cells, self.runs.undisturbed, Home(self.home))
        except (UserError, OSError) as error:
            return [str(error)]

    def works(self, verb: str) -> None:
        """Check that verb and run give what they give undisturbed."""
        shutil.rmtree(f"{self.home}-output", ignore_errors=True)  # an export into a folder that is not empty is refused
        for command in (verb, RUN):
            code = self.give(command)
            words = command.split()
            if code != (0 if "--yes" in words else CODES[self.grid.name].get(words[0], 0)):
                self.note(f"{command}, once that is over: exit {code}: {self.said[-1500:]}")
        if found := self.gives():
            self.note(f"once that is over: {found[:5]}: {self.said[-900:]}")


def damaged(runs: Runs, commands: Commands, home: Path, verbs: list[str]) -> list[str]:
    """Damage a file or folder and give a verb; a line for everything that is wrong then.

    After a verb that trains, also run the grid, and once more after a repair.
    """
    shutil.copytree(runs.half_done, home)
    if DRAW.random() < 0.1:
        return astray(runs, commands, home, verbs)
    by_kind = kinds(home)
    place = DRAW.choice(by_kind[DRAW.choice(sorted(by_kind))])
    verb, draw = DRAW.choice(verbs), drawn_at(place, runs, commands, home)
    draw.what = f"{place.relative_to(home)} {harm(place, files(home))}, then {verb} of {draw.grid.name}"
    now = entries(place)
    for command in (verb, RUN) if verb.startswith(CHANGING) else (verb,):
        draw.give(command, tracked="mlflow" in place.name)
    if not verb.startswith(CHANGING):
        return draw.wrong  # it changed no trial
    named = str(place.relative_to(home)) in draw.said or bool(draw.of and draw.of in draw.said)
    lost = draw.of if draw.of in searched(draw.grid) else ""  # trained again, it is judged after the others
    if named and draw.gives(lost):
        if draw.of and draw.of != lost and (more := draw.gives(draw.of)):
            draw.note(f"{more[:5]}; named; {draw.said[-900:]}")
        repair(place, runs.half_done / place.relative_to(home), now)
        draw.give(RUN)
    if found := draw.gives(lost):
        draw.note(f"{found[:5]}; {'named' if named else 'not named'}; {draw.said[-900:]}")
    return draw.wrong


def astray(runs: Runs, commands: Commands, home: Path, verbs: list[str]) -> list[str]:
    """Damage a grid file or a file of the data, give a verb, repair it, and train what that made stale."""
    draw = Draw(runs, commands, home, runs.grids["damaged"], "")
    place = DRAW.choice([draw.grid.file, DRAW.choice(files(runs.place / "data"))])
    verb, sound = DRAW.choice(verbs), place.read_bytes()
    try:
        draw.what = f"{place.name} {harm(place, [draw.grid.file, *files(runs.place / 'data')])}, then {verb}"
        draw.give(verb)
    finally:
        remove(place)
        place.write_bytes(sound)
    draw.give(STALE)
    if found := draw.gives():
        draw.note(f"{found[:5]}; {draw.said[-900:]}")
    return draw.wrong


def harm(place: Path, near: list[Path]) -> str:
    """Damage a file or folder; returns what was done to it."""
    name = DRAW.choice(sorted(INSTEAD if place.is_dir() else DAMAGES))
    alike = [path for path in near if path != place and path.suffix == place.suffix]
    DAMAGES[name](place, DRAW.choice(alike or near))
    return name


def drawn_at(place: Path, runs: Runs, commands: Commands, home: Path) -> Draw:
    """A draw about the grid that a place belongs to, or about any where it belongs to both."""
    grid = runs.grid_of(place, home) or DRAW.choice([*runs.grids.values()])
    return Draw(runs, commands, home, grid, owner(place, home))


def searched(grid: GridRuns) -> list[str]:
    """The trials of a grid's search, on which all its others depend."""
    return [cell.trials[0].id for cell in grid.points] if grid.name == "searched" else []


def repair(place: Path, sound: Path, damage: dict[str, str]) -> None:
    """Put back what was damaged, where it still is as it was damaged."""
    if entries(place) != damage:
        return
    remove(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(sound, place) if sound.is_dir() else shutil.copy2(sound, place)


def remove(place: Path) -> None:
    if os.path.lexists(place):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def failing(runs: Runs, commands: Commands, home: Path, verbs: list[str]) -> list[str]:
    """Let calls fail while a verb runs, then give it again; a line for everything that is wrong."""
    shutil.copytree(runs.half_done, home)
    by_kind = kinds(home)
    place = DRAW.choice(by_kind[DRAW.choice(sorted(by_kind))]) if DRAW.random() < 0.7 else home
    calls = DRAW.choice(list(ERRORS))
    number, inside = DRAW.choice(ERRORS[calls]), place.is_dir()
    fault = Fault(place, calls, number, DRAW.choice((0, 0, 0, 1, 2, 5, 20)), DRAW.random() < 0.7, inside)
    verb, draw = DRAW.choice(verbs), drawn_at(place, runs, commands, home)
    draw.what = f"{fault}, then {verb} of {draw.grid.name}"
    before = entries(home)
    draw.give(verb, fault, tracked="mlflow" in place.name)
    if verb.startswith(CHANGING) or entries(home) != before or os.path.lexists(draw.into):  # else it is as it was
        draw.works(verb)
    return draw.wrong


def drawn(
    how: Callable[[Runs, Commands, Path, list[str]], list[str]],
    runs: Runs,
    commands: Commands,
    folder: Path,
    draws: int,
    verbs: list[str],
) -> list[str]:
    seed, first = int(os.environ.get("GOALGRID_SEED", random.randrange(10**6))), 0
    wrong: list[str] = []
    if "GOALGRID_DRAW" in os.environ:  # of a seed, one draw alone
        first, draws = int(os.environ["GOALGRID_DRAW"]), 1
    for number in range(first, first + draws):
        DRAW.seed(f"{seed} {number}")
        wrong += [f"seed {seed}, draw {number}: {line}" for line in how(runs, commands, folder / str(number), verbs)]
        for path in folder.glob(f"{number}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return wrong


WAYS = pytest.mark.parametrize("how", [damaged, failing])


@WAYS
@pytest.mark.parametrize("runs", ["few"], indirect=True)
def test_damage_costs_at_most_its_own_trial(
    how: Callable[..., list[str]], runs: Runs, commands: Commands, tmp_path: Path
) -> None:
    wrong = drawn(how, runs, commands, tmp_path, 2, [*FAST])
    assert not wrong, "\n".join(wrong)


@pytest.mark.gate
@WAYS
@pytest.mark.parametrize("runs", ["few"], indirect=True)
def test_some_damages_cost_at_most_their_own_trials(
    how: Callable[..., list[str]], runs: Runs, commands: Commands, tmp_path: Path
) -> None:
    wrong = drawn(how, runs, commands, tmp_path, 8, [*FAST])
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("runs", ["all"], indirect=True)
def test_many_damages_cost_at_most_their_own_trials(
    how: Callable[..., list[str]], runs: Runs, commands: Commands, tmp_path: Path
) -> None:
    verbs = [*FAST * 4, *SLOW]
    wrong = drawn(how, runs, commands, tmp_path, int(os.environ.get("GOALGRID_DRAWS", "150")), verbs)
    assert not wrong, "\n".join(wrong)
