"""A trial from start to record: what it leaves, and how it fails."""

import json
import os
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
import torch

from goalgrid.grid.expansion import Trial
from goalgrid.grid.resources import Resources
from goalgrid.grid.store import attempts, processes
from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.results.records import record
from goalgrid.retrieval.words.text_readers import Vocabulary
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial import lease, retries
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.lease import Busy, Fenced, Lease
from goalgrid.runners.trial.retries import POLICY
from goalgrid.runners.trial.run import run_trial
from goalgrid.runners.trial.stopping import Stop

from ...states import attempt


def run(
    trial: Trial, home: Home, machine: Machine | None = None, *, launch: str = "one", stop: Stop | None = None
) -> tuple[State, list[Event]]:
    events: list[Event] = []
    folder = home.trial(trial.id)
    return run_trial(trial.settings, folder, events.append, machine or Machine(), launch=launch, stop=stop), events


def test_a_finished_trial_leaves_a_whole_record(tmp_path: Path, small_trial: Trial) -> None:
    state, events = run(small_trial, Home(tmp_path))
    folder = Home(tmp_path).trial(small_trial.id)
    assert state is folder.state() is State.DONE
    assert [e.kind for e in events if e.kind != "step"] == ["started", "epoch", "epoch", "done"]
    row = pd.read_parquet(folder.record).iloc[0]
    assert row["trial_id"] == small_trial.id
    assert len(row["test_i2t_ranks"]) == 500
    assert len(row["test_t2i_ranks"]) == 2500
    assert (row["test_i2t_ranks"] < 1).mean() * 100 == row["test_i2t_r1"]
    assert row["test_rsum"] == sum(row[f"test_{d}_r{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10))
    assert {item["name"] for item in row["history"]} >= {"loss", "s_pos", "s_neg", "active", "val_rsum", "lr"}
    assert 0 <= row["diagnostic_active"] <= 1
    assert row["diagnostic_spread"] > 0
    assert row["diagnostic_s_pos"] == next(
        item["value"] for item in row["history"] if (item["epoch"], item["name"]) == (row["selected_epoch"], "s_pos")
    )
    assert json.loads(row["settings"])["seed"] == 0
    reader = prepare(small_trial.settings, Machine()).reader
    assert isinstance(reader, Vocabulary)
    words = json.loads(folder.vocabulary.read_text())
    assert words == reader.words
    assert words[:3] == ["<pad>", "<unk>", "a"]  # then, in the order of their use, all other words
    assert set(record.SCHEMA.names) == set(row.index)
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "attempts", "best.ckpt", "done", "environment.json", "history.jsonl", "record.parquet", "settings.json",
        "vocabulary.json",
    ]  # fmt: skip
    (attempt,) = folder.attempts()
    assert attempt.outcome() == "done"
    assert "epoch 2: loss" in attempt.log.read_text()


def test_a_finished_trial_is_not_trained_again(tmp_path: Path, small_trial: Trial) -> None:
    run(small_trial, Home(tmp_path))
    before = Home(tmp_path).trial(small_trial.id).record.stat()
    state, events = run(small_trial, Home(tmp_path))
    assert state is State.DONE
    assert [event.kind for event in events] == ["done"]
    assert Home(tmp_path).trial(small_trial.id).record.stat().st_mtime_ns == before.st_mtime_ns


def test_a_trial_that_somebody_else_trains_is_left_alone(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    with lease.new_attempt(folder, Stop()):
        state, events = run(small_trial, Home(tmp_path))
    assert state is State.RUNNING
    assert events[0].kind == "busy"
    assert not folder.record.exists()


def test_the_trial_of_a_dead_process_is_taken_over(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    leave_attempt_of(subprocess.Popen(["sleep", "60"]), folder)
    assert run(small_trial, Home(tmp_path))[0] is State.DONE
    assert [attempt.outcome() for attempt in folder.attempts()] == ["killed", "done"]


def leave_attempt_of(process: subprocess.Popen[bytes], folder: TrialFolder, **different: object) -> Attempt:
    """An attempt that this process made until it was killed."""
    made = Attempt(folder.attempts_folder, len(folder.attempts()) + 1)
    made.folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": processes.machine(), "pid": process.pid, "started": processes.started(process.pid)}
    made.lease.write_text(json.dumps(content | {"launch": "one", "heartbeat": time.time()} | different))
    os.utime(made.lease, (0, 0))
    process.kill()
    process.wait()
    return made


def test_of_many_that_start_at_once_one_gets_the_trial(tmp_path: Path, small_trial: Trial) -> None:
    """Threads, and a dead attempt that all of them may take over: the race of drivers after a crash."""
    folder = Home(tmp_path).trial(small_trial.id)
    leave_attempt_of(subprocess.Popen(["sleep", "60"]), folder)
    got, busy, over = list[Lease](), list[int](), threading.Event()
    together = threading.Barrier(8)

    def contend() -> None:
        together.wait()
        try:
            with lease.new_attempt(folder, Stop()) as hold:
                got.append(hold)
                over.wait(10)
        except Busy:
            busy.append(1)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 10
    while len(busy) < 7 and time.monotonic() < until:
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join()
    assert (len(got), len(busy)) == (1, 7)
    assert got[0].attempt.number == 2


def test_a_foreign_attempt_with_a_wrong_clock_is_not_taken_while_it_beats(
    tmp_path: Path, small_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat is a day old by our clock, but it beats."""
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.5)
    folder = Home(tmp_path).trial(small_trial.id)
    sleeper = subprocess.Popen(["sleep", "60"])
    made = leave_attempt_of(sleeper, folder, machine="elsewhere", heartbeat=time.time() - 86400)
    content = json.loads(made.lease.read_text())

    def beat() -> None:
        time.sleep(0.2)
        made.lease.write_text(json.dumps(content | {"beats": 1}))

    heart = threading.Thread(target=beat)
    heart.start()
    assert run(small_trial, Home(tmp_path))[0] is State.RUNNING
    heart.join()
    os.utime(made.lease, (0, 0))
    assert run(small_trial, Home(tmp_path))[0] is State.DONE  # it beats no more


def test_a_lease_of_another_machine_is_awaited_until_it_beats_or_looks_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LEASE_SECONDS", 2.0)
    dead, beating = (attempt(Home(tmp_path).trial(name), machine="elsewhere") for name in ("dead", "beating"))
    assert dead.live()
    lease.await_beats([dead])
    assert not dead.live()
    monkeypatch.setattr(attempts, "LEASE_SECONDS", 3600.0)
    beat = threading.Timer(0.5, lambda: beating.lease.write_text(json.dumps(beating.content() | {"beats": 1})))
    beat.start()
    lease.await_beats([beating])
    assert beating.content()["beats"] == 1
    assert beating.live()


def test_who_lost_his_trial_to_another_stops_before_he_writes(tmp_path: Path, small_trial: Trial) -> None:
    """A node that was cut off and given up, whose process goes on: it must not come back over its successor."""
    folder = Home(tmp_path).trial(small_trial.id)
    with lease.new_attempt(folder, Stop()) as hold:
        assert not hold.beat(1)
        lease.end(hold.attempt, Failure.NODE_LOST, "the driver sees its node no more")
        with pytest.raises(Fenced):
            hold.commit()
        with pytest.raises(Fenced):
            hold.beat(2)
        with pytest.raises(Fenced):
            hold.end("done")
    assert folder.attempts()[0].failure() is Failure.NODE_LOST


def test_a_trial_asked_to_end_is_interrupted_and_goes_on(tmp_path: Path, small_trial: Trial) -> None:
    home, stop = Home(tmp_path), Stop()
    stop.ask()
    state, events = run(small_trial, home, stop=stop)
    folder = home.trial(small_trial.id)
    assert state is folder.state() is State.INTERRUPTED
    assert events[-1].kind == "interrupted"
    assert folder.attempts()[0].failure() is Failure.PREEMPTED
    assert run(small_trial, home)[0] is State.DONE
    assert "resumes from step 1" in folder.attempts()[1].log.read_text()


def test_a_trial_goes_on_with_the_threads_that_it_began_with_and_the_record_has_their_number(
    tmp_path: Path, small_trial: Trial
) -> None:
    whole, cut, stop = Home(tmp_path / "whole"), Home(tmp_path / "cut"), Stop()
    stop.ask()
    threads = torch.get_num_threads()
    try:
        run(small_trial, whole, Machine(Resources(cpu=1)))
        run(small_trial, cut, Machine(Resources(cpu=1)), stop=stop)
        state, events = run(small_trial, cut, Machine(Resources(cpu=2)))
    finally:
        torch.set_num_threads(threads)
    assert state is State.DONE
    folder = cut.trial(small_trial.id)
    said = "it resumes with the 1 thread it began with, although resources.cpu is now 2"
    assert [said in event.message for event in events if event.kind == "warning"] == [True]
    assert said in folder.attempts()[1].log.read_text()
    assert json.loads(folder.environment.read_text())["threads"] == 1
    ours, theirs = (record.collect([home.trial(small_trial.id).record]).to_pylist()[0] for home in (whole, cut))
    assert json.loads(theirs["environment"])["threads"] == 1
    told = [[item for item in row["history"] if item["name"] != "seconds"] for row in (ours, theirs)]
    assert told[0] == told[1]
    assert ours["test_i2t_ranks"] == theirs["test_i2t_ranks"]


def test_a_file_that_all_nodes_see_asks_too(tmp_path: Path, small_trial: Trial) -> None:
    request = tmp_path / "stop"
    request.touch()
    longer = small_trial.settings.train.model_copy(update={"epochs": 500})
    trial = Trial("t", small_trial.shared._replace(train=longer), seed=0)
    assert run(trial, Home(tmp_path), stop=Stop(request))[0] is State.INTERRUPTED


def test_a_data_problem_is_one_line_in_the_error_file(tmp_path: Path, small_trial: Trial) -> None:
    dataset = small_trial.settings.dataset.model_copy(update={"name": "flickr8k"})
    trial = Trial("t", small_trial.shared._replace(dataset=dataset), seed=0)
    state, events = run(trial, Home(tmp_path), Machine(roots=(("flickr8k", str(tmp_path / "nowhere")),)))
    folder = Home(tmp_path).trial("t")
    assert state is folder.state() is State.FAILED
    assert events[-1].message == folder.reason()
    assert folder.error.read_text().startswith("data: root of data set 'flickr8k': no folder at")


def test_our_own_fault_leaves_its_traceback(tmp_path: Path, small_trial: Trial) -> None:
    model = small_trial.settings.model.model_copy(update={"dim": -1})
    trial = Trial("t", small_trial.shared._replace(model=model), seed=0)
    assert run(trial, Home(tmp_path))[0] is State.FAILED
    folder = Home(tmp_path).trial("t")
    assert "Traceback" in folder.error.read_text()
    assert "Traceback" in folder.attempts()[0].log.read_text()
    assert folder.reason().startswith("bug: RuntimeError:")


def test_out_of_memory_gets_one_more_try_in_a_launch_and_each_keeps_its_log(tmp_path: Path, small_trial: Trial) -> None:
    model = small_trial.settings.model.model_copy(update={"dim": 2 * 10**12})
    trial, home = Trial("t", small_trial.shared._replace(model=model), seed=0), Home(tmp_path)
    assert run(trial, home)[0] is State.INTERRUPTED
    assert run(trial, home)[0] is State.FAILED
    folder = home.trial("t")
    assert folder.failure() is Failure.OUT_OF_MEMORY
    assert folder.reason().endswith("(2 attempts)")
    assert all("Traceback" in attempt.log.read_text() for attempt in folder.attempts())
    assert run(trial, home, launch="another")[0] is State.INTERRUPTED  # who gives the command again gets new tries


def test_a_disk_that_refuses_the_log_fails_no_trial(tmp_path: Path, small_trial: Trial) -> None:
    attempts = Home(tmp_path).trial(small_trial.id).attempts_folder
    attempts.mkdir(parents=True)
    (attempts / "001.log").symlink_to("/dev/full")
    assert run(small_trial, Home(tmp_path))[0] is State.DONE


def test_a_process_that_dies_too_often_is_reported(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    for _ in range(POLICY[Failure.KILLED].tries):
        leave_attempt_of(subprocess.Popen(["sleep", "60"]), folder)
    state, events = run(small_trial, Home(tmp_path))
    assert state is folder.state() is State.FAILED
    assert events[-1].message.startswith("killed:")
    assert len(folder.attempts()) == 3


def test_no_error_stands_beside_a_done_trial_that_another_launch_gave_up(tmp_path: Path, small_trial: Trial) -> None:
    """A launch gives a trial up while another launch trains it, and once more after that."""
    home = Home(tmp_path)
    folder = home.trial(small_trial.id)
    for _ in range(POLICY[Failure.KILLED].tries):
        leave_attempt_of(subprocess.Popen(["sleep", "60"]), folder)
    standing = list[bool]()

    def give_up(event: Event) -> None:
        if event.kind == "epoch":
            run(small_trial, home, launch="one")
            standing.append(folder.error.exists())

    assert run_trial(small_trial.settings, folder, give_up, Machine(), launch="two") is State.DONE
    assert standing == [True, True]
    assert retries.given_up(folder, "one")
    assert not folder.error.exists()


def test_what_killed_processes_half_wrote_is_removed(tmp_path: Path, small_trial: Trial) -> None:
    folder = Home(tmp_path).trial(small_trial.id)
    folder.path.mkdir(parents=True)
    (folder.path / f".last.ckpt.{'0a1b2c3d' * 4}").write_bytes(b"half")
    run(small_trial, Home(tmp_path))
    assert not list(folder.path.glob(".*"))


def test_a_full_disk_fails_the_trial_and_more_room_finishes_it(tiny_disk: Path, small_trial: Trial) -> None:
    home = Home(tiny_disk)
    (tiny_disk / "ballast").write_bytes(os.urandom(150_000))
    ended = [run(small_trial, home) for _ in range(3)]
    assert [state for state, _ in ended] == [State.INTERRUPTED, State.INTERRUPTED, State.FAILED]  # room may have come
    messages = [events[-1].message for _, events in ended]
    assert all(message.startswith("storage: cannot write") for message in messages)
    assert all("No space left on device" in message for message in messages)
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny_disk)], check=True)
    assert run(small_trial, home, launch="another")[0] is State.DONE
    assert home.trial(small_trial.id).state() is State.DONE
    assert not home.trial(small_trial.id).error.exists()


def test_a_disk_that_is_full_when_the_record_is_written_costs_no_training(tiny_disk: Path, small_trial: Trial) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(tiny_disk)], check=True)
    home = Home(tiny_disk)
    ballast = tiny_disk / "ballast"

    def fill(event: Event) -> None:
        if event.kind == "epoch" and event.epoch == small_trial.settings.train.epochs:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(os.urandom(4096))

    folder = home.trial(small_trial.id)
    state = run_trial(small_trial.settings, folder, fill, Machine(), launch="one")
    assert state is State.FAILED  # not even how it ended could be written
    assert not folder.done.exists()
    ballast.unlink()
    assert run(small_trial, home)[0] is State.DONE
    last = folder.attempts()[-1].log.read_text()
    assert "epoch" not in last.replace("goes on", "")  # every epoch was in the checkpoint
    assert len(pd.read_parquet(folder.record)) == 1


def test_a_disk_without_inodes_fails_the_trial_which_nobody_then_trains(tiny_disk: Path, small_trial: Trial) -> None:
    """Lease and log take the last inodes, so that not even how the attempt ended gets a file."""
    folders = [tiny_disk, tiny_disk / "trials", tiny_disk / "trials/ID", tiny_disk / "trials/ID/attempts"]
    inodes = len([*folders, "001.json", "001.log"])
    subprocess.run(["mount", "-o", f"remount,size=8m,nr_inodes={inodes}", str(tiny_disk)], check=True)
    folder = Home(tiny_disk).trial(small_trial.id)
    _, events = run(small_trial, Home(tiny_disk))
    assert events[-1].message.startswith("storage: cannot write")
    assert [path.name for path in sorted(folder.attempts_folder.iterdir())] == ["001.json", "001.log"]
    assert (folder.state(), folder.latest().failure()) == (State.PLANNED, Failure.STORAGE)
    subprocess.run(["mount", "-o", "remount,size=8m,nr_inodes=1000", str(tiny_disk)], check=True)
    assert run(small_trial, Home(tiny_disk))[0] is State.DONE


def test_a_runs_folder_that_is_unmounted_gets_no_file_in_its_place(tiny_disk: Path, small_trial: Trial) -> None:
    """Trained on into the bare mount point, the trial would be done there, and nowhere else."""
    subprocess.run(["mount", "-o", "remount,size=16m", str(tiny_disk)], check=True)
    home, events = Home(tiny_disk / "runs"), list[Event]()

    def unmount(event: Event) -> None:
        events.append(event)
        if event.kind == "epoch" and event.epoch == 1:
            subprocess.run(["umount", "--lazy", str(tiny_disk)], check=True)

    state = run_trial(small_trial.settings, home.trial(small_trial.id), unmount, Machine(), launch="one")
    left = list(tiny_disk.iterdir())
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tiny_disk)], check=True)
    assert left == []
    assert state is State.FAILED
    assert events[-1].message.startswith("storage: cannot write")
    assert "its disk is no longer mounted" in events[-1].message
