"""Whatever is killed, whenever: the same command completes the grid, and every number is as if nothing had happened."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from goalgrid.grid.store.home import Home, State, TrialFolder
from tests.fork_server import client

from ..conftest import LASTING, ROOT, Goalgrid
from .processes import listening_addresses, pid_of, running, start, start_in_terminal, wait_until

GRID = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0,1,2]", *LASTING, "--set", "train.epochs=12")
RUN = ("run", "demo", *GRID, "--mlflow-uri", "")


@pytest.fixture(scope="module")
def undisturbed(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The grid, trained in one process, without Ray and without faults."""
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    finished = goalgrid(*RUN, "--here", runs=home.path)
    assert finished.returncode == 0, finished.stderr
    return home


def folders(home: Home) -> dict[str, TrialFolder]:
    return {path.name: TrialFolder(path) for path in sorted((home.path / "trials").iterdir())}


def outcomes(home: Home) -> list[list[str | None]]:
    return [[attempt.outcome() for attempt in folder.attempts()] for folder in folders(home).values()]


def assert_as_if_nothing_happened(home: Home, undisturbed: Home, grid: str = "demo") -> None:
    """The same trials, each trained to its end once, with the same numbers to the bit; and the same table."""
    assert list(folders(home)) == list(folders(undisturbed))
    for name, folder in folders(home).items():
        assert folder.state() is State.DONE
        assert [attempt.outcome() for attempt in folder.attempts()].count("done") == 1
        ours, theirs = (pd.read_parquet(f.record).iloc[0] for f in (folder, folders(undisturbed)[name]))
        metrics = [key for key in ours.index if key.startswith(("val_", "test_", "diagnostic_")) and "ranks" not in key]
        assert ours[metrics].equals(theirs[metrics])
        for column in ("test_i2t_ranks", "test_t2i_ranks"):
            assert ours[column].tolist() == theirs[column].tolist()
        ours_history, theirs_history = (
            [item for item in row["history"] if item["name"] != "seconds"] for row in (ours, theirs)
        )
        assert ours_history == theirs_history
    ours, theirs = (
        {path.name: path.read_bytes() for path in each.grid(grid).tables.glob("*.csv")} for each in (home, undisturbed)
    )
    assert ours
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "epochs"), [("xvlm-tiny", 6), ("clip-tiny", 100)])
def test_a_launch_of_pretrained_models_is_killed_and_ends_in_the_same_table(
    recipe: str, epochs: int, goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    """On photographs: the fusion encoder's dropout and drawn negatives go on to the bit, and so does cached CLIP."""
    settings = (
        f"recipes=['{recipe}']", 'objectives=["con_con","sig-ms_cir","unified"]', "seeds=[0]", 'datasets=["few"]',
        f"train.epochs={epochs}", "name=pretrained",
    )  # fmt: skip
    overrides = [word for setting in settings for word in ("--set", setting)]
    command = ("run", "flickr8k", *overrides, "--root", f"few={few_pictures}", "--mlflow-uri", "")
    home, undisturbed = Home(tmp_path / "killed"), Home(tmp_path / "whole")
    process = start(*command, runs=home.path)
    wait_until(lambda: bool(running(home)), process, seconds=400)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    again = goalgrid(*command, runs=home.path, timeout=600)
    assert again.returncode == 0, again.stderr
    assert any("killed" in made for made in outcomes(home))
    assert f"{recipe} on few" in again.stdout
    alone = goalgrid(*command, "--here", runs=undisturbed.path)
    assert alone.returncode == 0, alone.stderr
    assert_as_if_nothing_happened(home, undisturbed, "pretrained")


@pytest.mark.slow
def test_a_launch_killed_in_each_round_of_a_search_ends_in_the_same_choice(goalgrid: Goalgrid, tmp_path: Path) -> None:
    """In the search, while the best points are confirmed, and in the trials of the chosen values."""
    grid = ("--set", 'objectives=["con_con","sig-ms_cir"]', *LASTING, "--set", "train.epochs=12", "--set", "seeds=[0]")
    words = ('select.over={"train.lr"=[1e-4,1e-3]}', "select.include=default", "select.confirm=2",
             "select.confirm_seeds=1", "name=tuned")  # fmt: skip
    select = (*(word for pair in words for word in ("--set", pair)), "--mlflow-uri", "")
    home, undisturbed = Home(tmp_path / "killed"), Home(tmp_path / "whole")
    for done in (1, 7, 11):  # of 6 search trials, 4 that confirm, and 2 that tables show
        process = start("run", "demo", *grid, *select, runs=home.path)
        wait_until(
            lambda done=done: len(list(home.path.glob("trials/*/done"))) >= done and bool(running(home)),
            process,
            seconds=400,
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    again = goalgrid("run", "demo", *grid, *select, runs=home.path, timeout=600)
    assert again.returncode == 0, again.stderr
    seeds = [name.rpartition("-")[0].rpartition("_s")[2] for name in folders(home)]
    assert {seed: seeds.count(seed) for seed in seeds} == {"100": 6, "101": 4, "0": 2}
    alone = goalgrid("run", "demo", *grid, *select, "--here", runs=undisturbed.path, timeout=600)
    assert alone.returncode == 0, alone.stderr
    assert home.grid("tuned").choices.read_bytes() == undisturbed.grid("tuned").choices.read_bytes()
    assert_as_if_nothing_happened(home, undisturbed, "tuned")


@pytest.mark.slow
def test_in_one_launch_a_worker_is_killed_one_hangs_and_one_wants_too_much_memory(
    tmp_path: Path, undisturbed: Home, goalgrid: Goalgrid
) -> None:
    home = Home(tmp_path)
    too_large = ("--set", "sweep.model.dim=[32,2000000000000]", "--set", "reliability.stall_minutes=0.15")
    process = start(*RUN, *too_large, runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    killed = running(home)[0]
    os.kill(pid_of(killed), signal.SIGKILL)
    wait_until(lambda: any(folder != killed for folder in running(home)), process)
    hung = next(folder for folder in running(home) if folder != killed)
    os.kill(pid_of(hung), signal.SIGSTOP)
    _, talk = process.communicate(timeout=240)
    assert process.returncode == 4, talk
    assert "retry" in talk
    by_id = folders(home)
    assert [attempt.outcome() for attempt in killed.attempts()] == ["killed", "done"]
    assert [attempt.outcome() for attempt in hung.attempts()] == ["timeout", "done"]
    assert "no progress for 0.15 minutes" in hung.attempts()[0].message()
    large = [folder for name, folder in by_id.items() if name not in folders(undisturbed)]
    for folder in large:
        assert folder.state() is State.FAILED
        assert [attempt.outcome() for attempt in folder.attempts()] == ["out-of-memory"] * 2
        assert all("Traceback" in attempt.log.read_text() for attempt in folder.attempts())
    assert len(large) == 3
    completed = goalgrid(*RUN, runs=tmp_path)  # the grid without them is whole
    assert completed.returncode == 0, completed.stderr
    for folder in large:
        shutil.rmtree(folder.path)
    assert_as_if_nothing_happened(home, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--here",), ()], ids=["here", "Ray"])
def test_a_closed_terminal_leaves_checkpoints_and_no_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    home = Home(tmp_path)
    process, terminal = start_in_terminal(*RUN, *options, "--set", "train.epochs=500", runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    family = psutil.Process(process.pid).children(recursive=True)
    os.close(terminal)
    assert process.wait(timeout=60) == 3
    assert "pre-empted" in [outcome for attempts in outcomes(home) for outcome in attempts]
    assert State.RUNNING not in {folder.state() for folder in folders(home).values()}
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


@pytest.mark.slow
def test_sigterm_leaves_checkpoints_kill_9_none_and_the_same_command_completes(
    tmp_path: Path, undisturbed: Home, goalgrid: Goalgrid
) -> None:
    home = Home(tmp_path)
    process = start(*RUN, runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    assert listening_addresses(process) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    process.send_signal(signal.SIGTERM)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 3, talk
    assert "Traceback" not in talk
    assert "pre-empted" in [outcome for attempts in outcomes(home) for outcome in attempts]
    assert State.RUNNING not in {folder.state() for folder in folders(home).values()}

    process = start(*RUN, runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    process.kill()
    process.communicate(timeout=60)
    done = {name: folder.record.read_bytes() for name, folder in folders(home).items() if folder.done.exists()}
    wait_until(lambda: State.RUNNING not in {folder.state() for folder in folders(home).values()}, seconds=30)

    again = goalgrid(*RUN, runs=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"training {3 - len(done)}" in again.stderr
    assert all(folders(home)[name].record.read_bytes() == record for name, record in done.items())
    assert_as_if_nothing_happened(home, undisturbed)


@pytest.mark.gate
def test_sigterm_twice_within_milliseconds_leaves_a_checkpoint(tmp_path: Path) -> None:
    """As where Slurm requeues a job: it signals all processes, and the script passes its own signal on."""
    home = Home(tmp_path)
    process = start(*RUN, "--here", "--set", "train.epochs=500", runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)  # else the kernel delivers one
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 3, talk
    assert talk.count("asked to end") == 1
    assert [outcome for attempts in outcomes(home) for outcome in attempts] == ["pre-empted"]


@pytest.mark.slow
def test_ctrl_c_to_the_whole_group_ends_with_checkpoints(tmp_path: Path, undisturbed: Home, goalgrid: Goalgrid) -> None:
    home = Home(tmp_path)
    process = start(*RUN, runs=tmp_path)
    wait_until(lambda: bool(running(home)), process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 3, talk
    assert "Traceback" not in talk
    assert "to continue: goalgrid resume demo" in talk
    assert {outcome for attempts in outcomes(home) for outcome in attempts} <= {"pre-empted", "done"}
    assert goalgrid("resume", "demo", "--here", "--mlflow-uri", "", runs=tmp_path).returncode == 0
    assert_as_if_nothing_happened(home, undisturbed)


@pytest.mark.slow
def test_two_drivers_share_a_grid_and_train_nothing_twice(tmp_path: Path, undisturbed: Home) -> None:
    home = Home(tmp_path)
    drivers = [start(*RUN, "--here", runs=tmp_path) for _ in range(2)]
    talks = [driver.communicate(timeout=120)[1] for driver in drivers]
    assert 0 in {driver.returncode for driver in drivers}
    assert {driver.returncode for driver in drivers} <= {0, 6}  # 6: the other one was still at work
    assert any("is training this trial" in talk for talk in talks)
    assert all(len(folder.attempts()) == 1 for folder in folders(home).values())
    assert_as_if_nothing_happened(home, undisturbed)


@pytest.mark.gate
def test_a_trial_that_hangs_without_ray_ends_its_process(tmp_path: Path, goalgrid: Goalgrid) -> None:
    """Its log says where it hung."""
    hang = (  # the first optimiser imports torch._dynamo, which takes seconds beside other work
        "import time, torch._dynamo; from goalgrid.runners.training import trainer\n"
        "trainer.Trainer._train_epoch = lambda self: time.sleep(600)\n"
        "from goalgrid.cli.app import main; main()"
    )
    command = [sys.executable, "-c", hang, *RUN, "--here", "--set", "reliability.stall_minutes=0.05"]
    environment = {**os.environ, "GOALGRID_RUNS": str(tmp_path)}
    finished = client.run(command, timeout=120, env=environment, cwd=ROOT)
    assert finished.returncode == 3
    (attempt,) = next(iter(folders(Home(tmp_path)).values())).attempts()
    assert attempt.outcome() == "timeout"
    assert "runners/training/trainer.py" in attempt.log.read_text()
