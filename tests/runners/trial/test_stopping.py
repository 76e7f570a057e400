"""A signal while trials run: they are asked for a checkpoint first, whatever Ray did to the handlers."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from goalgrid.runners.trial.stopping import SAME_SECONDS, Interrupts, Stop


def test_a_signal_asks_for_checkpoints_though_ray_has_replaced_its_handler_and_the_next_ends_at_once(
    tmp_path: Path,
) -> None:
    stop, told, before = Stop(tmp_path / "now.stop"), list[str](), signal.getsignal(signal.SIGTERM)
    elsewhere = Stop(tmp_path / "now.stop")
    with Interrupts(stop, told.append) as interrupts:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a Ray that starts meanwhile puts its own
        interrupts.soften()
        signal.raise_signal(signal.SIGTERM)
        elsewhere.look()
        assert (stop.asked(), elsewhere.asked()) == (True, True)
        time.sleep(SAME_SECONDS)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the second signal ends nothing")
    assert [message.partition(":")[0] for message in told] == ["asked to end", "interrupted; finished work is kept"]
    assert list(tmp_path.iterdir()) == [], "the request stands for no one"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_of_the_scheduler_at_once_is_the_same_request_and_ctrl_c_ends_at_once(
    second: signal.Signals, tmp_path: Path
) -> None:
    """Slurm signals a requeued job's processes, and so does the script, which hears it too."""
    stop, told = Stop(tmp_path / "now.stop"), list[str]()
    with Interrupts(stop, told.append) as interrupts:
        interrupts.soften()
        for number in (signal.SIGTERM, second, second):
            signal.raise_signal(number)
        assert [message.partition(":")[0] for message in told] == ["asked to end"]
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C ends nothing")
    assert told[-1] == "interrupted; finished work is kept"


def test_a_second_signal_before_any_trial_runs_does_not_cut_the_end_short(tmp_path: Path) -> None:
    cleaned = False
    with Interrupts(Stop(tmp_path / "now.stop"), list[str]().append):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned = True
    assert cleaned


def test_a_signal_that_others_swallow_ends_the_launch_before_any_trial_runs(tmp_path: Path) -> None:
    """Code that is imported meanwhile may catch all: a launch trained on, and Slurm killed it half a minute later."""
    told = list[str]()
    with Interrupts(Stop(tmp_path / "now.stop"), told.append) as interrupts:
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        interrupts.soften()
        raise AssertionError("the signal ends nothing")
    assert told == ["interrupted; finished work is kept"]
