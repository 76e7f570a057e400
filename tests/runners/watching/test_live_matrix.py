"""The live matrix: what it says after each event."""

import io
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import State
from goalgrid.runners.trial.events import Event, EventKind
from goalgrid.runners.watching.live_matrix import SETTLED, Board, Display
from goalgrid.runners.watching.view import View


def board(*overrides: str) -> Board:
    cells: list[Cell] = expand(load("demo", overrides))
    states = {trial.id: State.PLANNED for cell in cells for trial in cell.trials}
    return Board(cells, states, states)


def row(epoch: int, i2t: float, t2i: float, rsum: float) -> Mapping[str, Any]:
    return {"epoch": epoch, "step": 11 * epoch, "val_i2t_r1": i2t, "val_t2i_r1": t2i, "val_rsum": rsum}


def drawn(board: Board, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(board.render())
    return console.export_text()


def test_cells_show_seeds_and_their_mean_at_the_selected_epoch() -> None:
    live = board()
    first = live.cells[0].trials
    live.update(Event(first[0].id, "epoch", metrics=dict(row(1, 12.3, 9.8, 60)), epoch=1))
    live.update(Event(first[0].id, "epoch", metrics=dict(row(2, 11.0, 10.1, 61)), epoch=2))
    live.update(Event(first[0].id, "epoch", metrics=dict(row(3, 40.0, 30.0, 61)), epoch=3))  # no better than the second
    live.update(Event(first[1].id, "epoch", metrics=dict(row(1, 21.0, 14.1, 50)), epoch=1))
    live.update(Event(first[1].id, "done"))
    live.update(Event(first[2].id, "failed", 3, message="nan"))
    text = drawn(live)
    assert "◐●✗ 16.0 / 12.1" in text
    assert "validation R@1 (i2t / t2i), mean over seeds, selected epoch" in text
    assert "1/45 done, 1 running, 1 failed" in text
    assert "to go" in text
    assert [word in text for word in ("con", "lin-ms", "sig-ms", "nca", "cir")] == [True] * 5


def test_the_last_epoch_is_shown_where_it_is_selected_and_epochs_of_earlier_launches_count() -> None:
    cells = expand(load("demo", ["train.selection='last'"]))
    states = {trial.id: State.PLANNED for cell in cells for trial in cell.trials}
    (done, cut, fresh), other = cells[0].trials, cells[1].trials[0]
    states |= {done.id: State.DONE, cut.id: State.INTERRUPTED}
    histories = {done.id: [row(1, 50, 50, 300), row(2, 20, 10, 100)], cut.id: [row(1, 30, 20, 90), row(2, 90, 90, 400)]}
    live = Board(cells, states, states, history=lambda name: histories.get(name, [row(1, 99, 99, 500)]))
    assert "●○○ 55.0 / 50.0" in drawn(live)
    live.update(Event(cut.id, "started"))
    live.update(Event(cut.id, "step", step=14, steps=100))
    live.update(Event(cut.id, "epoch", metrics=dict(row(2, 40, 30, 95)), epoch=2))  # its checkpoint was of the first
    assert "●◐○ 30.0 / 20.0" in drawn(live)
    live.update(Event(cut.id, "epoch", metrics=dict(row(1, 10, 10, 95)), epoch=1))  # it began again
    assert "●◐○ 15.0 / 10.0" in drawn(live)
    live.update(Event(fresh.id, "epoch", metrics=dict(row(1, 0, 4, 5)), epoch=1))
    assert "●◐◐ 10.0 / 8.0" in drawn(live)
    assert live.trials[other.id].selected == {}


def test_epochs_tell_the_step_and_the_speed_and_a_resumed_trial_its_epoch() -> None:
    live = board("train.epochs=10")
    trial, other = live.cells[0].trials[:2]
    live.update(Event(trial.id, "started"))
    live.update(Event(trial.id, "step", step=1, steps=110, at=100.0))
    assert "con_con seed 0 1/10 1/110" in " ".join(drawn(live).split())
    for epoch in (1, 2, 3, 4):  # they arrive together
        live.update(Event(trial.id, "epoch", epoch, dict(row(epoch, 1, 1, 6)), at=100.0 + epoch / 2))
    assert "con_con seed 0 4/10 44/110 21.5 0:03" in " ".join(drawn(live).split())  # 43 steps in two seconds
    live.update(Event(other.id, "started"))
    live.update(Event(other.id, "step", step=78, steps=110, at=200.0))
    assert "con_con seed 1 8/10 78/110" in " ".join(drawn(live).split())


def test_what_an_earlier_launch_trained_of_a_trial_does_not_count_for_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cells = expand(load("demo", ["train.epochs=10", "seeds=[0]", 'objectives=["con_con"]']))
    name = cells[0].trials[0].id
    live = Board(cells, {name: State.INTERRUPTED}, {name})
    live.update(Event(name, "step", step=50, steps=100))
    now[0] += 20
    live.update(Event(name, "step", step=60, steps=100))
    now[0] += 20
    live.update(Event(name, "step", step=70, steps=100))
    assert live.summary().endswith("0:40 elapsed, 1:00 to go")


def test_without_a_live_view_it_notes_each_finished_trial(caplog: pytest.LogCaptureFixture) -> None:
    live = board("seeds=[0]")
    name = live.cells[0].trials[0].id
    with Display(live, View()) as display:
        display(Event(name, "started"))
        display(Event(name, "epoch", 1, {"val_i2t_r1": 1.0, "val_t2i_r1": 1.0}))
        display(Event(name, "done", metrics={"test_i2t_r1": 41.9, "test_t2i_r1": 20.2}))
        display(Event(live.cells[1].trials[0].id, "failed", message="the loss became nan"))
    lines = [str(record.msg) for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(f"done    {name}  i2t R@1 41.9  t2i R@1 20.2  (1/15 done")
    assert lines[1].endswith("the loss became nan")


def test_the_time_to_go_is_that_of_the_trials_of_the_launch() -> None:
    whole = board()
    names = list(whole.trials)
    part = Board(whole.cells, dict.fromkeys(names, State.PLANNED), names[:1])
    for live in (whole, part):
        live.update(Event(names[0], "done"))
        assert live.summary().startswith("1/45 done")
    assert "to go" in whole.summary()
    assert "to go" not in part.summary()


def test_what_was_done_before_does_not_count_for_the_pace() -> None:
    cells = expand(load("demo"))
    states = {trial.id: State.DONE for cell in cells for trial in cell.trials}
    states[cells[0].trials[0].id] = State.PLANNED
    live = Board(cells, states, states)
    assert live.summary().startswith("44/45 done")
    assert "to go" not in live.summary()


KINDS = st.sampled_from(
    ["started", "step", "epoch", "done", "failed", "busy", "retry", "interrupted", "stopped", "warning"]
)


@given(st.lists(st.tuples(st.integers(0, 44), KINDS, st.integers(0, 8)), max_size=60))
def test_the_summary_is_that_of_all_trials_counted_anew(events: list[tuple[int, EventKind, int]]) -> None:
    live = board()
    names, resumed = list(live.trials), 0.0
    for place, kind, epoch in events:
        trial, trained_before = live.trials[names[place]], live.trials[names[place]].behind
        begins = not trial.reports and kind in ("step", "epoch")
        live.update(Event(names[place], kind, epoch, step=epoch, steps=40))
        resumed += (trial.behind - trained_before) * begins
    trials = live.trials.values()
    assert {state: live.count(state) for state in State} == {s: sum(t.state is s for t in trials) for s in State}
    left, behind = sum(t.ahead for t in trials), sum(t.behind for t in trials) - resumed
    later = time.monotonic() + SETTLED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: later)
        assert ("to go" in live.summary()) == (behind > 1e-6 and left > 1e-6)


def test_many_seeds_are_counted_and_of_many_matrices_those_at_work_are_drawn() -> None:
    live = board(f"seeds={list(range(12))}", f"sweep.train.lr={[n / 1000 for n in range(1, 13)]}")
    last = live.cells[-1]
    live.update(Event(last.trials[0].id, "epoch", 1, dict(row(1, 12.3, 9.8, 60))))
    live.update(Event(last.trials[1].id, "done"))
    text = drawn(live)
    assert "train.lr = 0.012" in text
    assert "1● 1◐ 10○ 12.3 / 9.8" in text
    assert text.count("validation R@1") == 8
    assert "and 4 more" in text


@pytest.mark.parametrize("width", [80, 200])
def test_the_view_fits_the_terminal_and_shows_epoch_step_rate_and_time_to_go(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    live = board("seeds=[0,1,2,3,4,5,6,7]", 'recipes=["cnn-bow","frozen-bow"]', "train.epochs=10")
    live.phase = "starting Ray"
    assert drawn(live, width).rstrip().endswith("0/240 done; 0:00 elapsed; starting Ray")
    first, second = live.cells[0].trials[:2]
    live.gpus = "GPU 0: 87 %, 21.3 of 140.4 GiB"
    live.update(Event(first.id, "started"))
    live.update(Event(first.id, "epoch", 4, dict(row(4, 100, 100, 600))))
    for step in range(1000, 1300, 100):
        now[0] += 5
        live.update(Event(first.id, "step", step=step, steps=2500))
        assert ("to go" in live.summary()) == (step > 1000), "the pace of the first seconds says nothing"
    live.update(Event(second.id, "started"))
    text = drawn(live, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "◐◐○○○○○○ 100.0 / 100.0" in text
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert {"con_con seed 0 cnn-bow 5/10 1,200/2,500 20 1:05", "con_con seed 1 cnn-bow 1/10 starting"} <= lines
    assert "GPU 0: 87 %, 21.3 of 140.4 GiB" in lines
    assert "0/240 done, 2 running; 0:15 elapsed, 12:28:30 to go" in lines
    live.stopping = lambda: True
    assert live.summary().endswith("0:15 elapsed, stopping")
    assert "1:05" not in drawn(live, width)
    live.update(Event(first.id, "retry"))
    live.update(Event(first.id, "started"))  # the rate of the new attempt is not known yet
    assert live.trials[first.id].rate == 0


def test_few_cells_of_the_matrix_are_a_list_and_a_low_terminal_shows_fewer_matrices() -> None:
    few = drawn(board('objectives=["con_con","lin_cir"]'), 80)
    assert [line.split()[1] for line in few.splitlines() if "○" in line] == ["con_con", "lin_cir"]
    several = board('recipes=["cnn-bow","frozen-bow","cnn-gru"]')
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(several.render(height=24))
    text = console.export_text()
    assert len(text.splitlines()) <= 24
    assert "and 1 more" in text
