"""A signal while trials run: they are asked for a checkpoint first, whatever Ray did to the handlers."""

import signal
from pathlib import Path

from goalgrid.runners.trial.stopping import Interrupts, Stop


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
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the second signal ends nothing")
    assert [message.partition(":")[0] for message in told] == ["asked to end", "interrupted; what is done is kept"]
    assert list(tmp_path.iterdir()) == [], "the request stands for no one"
    assert signal.getsignal(signal.SIGTERM) is before
