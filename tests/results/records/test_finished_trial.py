"""A finished trial's numbers against its record: equal on its own machine, a few queries apart on another."""

from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records import provenance, record
from goalgrid.results.records.finished_trial import FinishedTrial

CODE = provenance.versioned("a")
TRIAL = FinishedTrial(TrialFolder(Path("runs/trials/one")), {"environment": "{}", "code_fingerprint": CODE})
RECORD = {"i2t_r1": 48.7, "t2i_r1": 30.0, "i2t_medr": 2.0, "rsum": 300.0}


def found(change: float) -> dict[str, float]:
    return RECORD | {"i2t_r1": 48.7 + change, "i2t_medr": 3.0, "rsum": 300.0 + change}


@pytest.mark.parametrize("change", [0.1, -5.2])
def test_on_its_own_machine_a_trial_has_its_numbers_and_no_others(change: float) -> None:
    TRIAL.check_numbers(RECORD, RECORD, 1000, list)
    with pytest.raises(
        UserError, match=r"trial one .* its files give i2t_r1 .* instead of 48\.70, .*trained on this machine"
    ):
        TRIAL.check_numbers(RECORD, found(change), 1000, list)


@pytest.mark.parametrize(
    ("queries", "change", "right"), [(1000, 0.9, True), (1000, 1.1, False), (100, 2.0, True), (100, 3.0, False)]
)
def test_on_another_machine_a_few_queries_may_differ(queries: int, change: float, right: bool) -> None:
    def check() -> None:
        TRIAL.check_numbers(RECORD, found(-change), queries, lambda: ["threads 1 -> 2"])

    if right:
        check()
    else:
        with pytest.raises(UserError, match="only a few queries may differ because of threads 1 -> 2"):
            check()


def test_another_version_machine_or_number_of_threads_may_round_otherwise() -> None:
    now = provenance.environment("cpu", "", 1)
    assert provenance.elsewhere(now, now) == []
    assert provenance.elsewhere(now | {"source": None}, now) == []
    assert provenance.elsewhere(now | {"host": "another"}, now) == [f"host another -> {now['host']}"]
    assert provenance.elsewhere(now | {"threads": 2}, now) == ["threads 2 -> 1"]
    assert provenance.elsewhere(now | {"versions": {"torch": "1.0"}}, now)[0].startswith("torch 1.0 -> ")
    assert "threads unknown -> 1" in provenance.elsewhere({}, now)


@pytest.mark.parametrize("epoch", [11, 13])
def test_the_weights_are_of_the_recorded_epoch(epoch: int) -> None:
    values = {f"val_{name}": 50.0 for name in record.METRICS}
    trial = FinishedTrial(TRIAL.folder, {**TRIAL.row, **values, "selected_epoch": 12})
    trial.check_weights({"row": {"epoch": 12, **values}})
    with pytest.raises(UserError, match=rf"it holds epoch {epoch} with val_rsum 51\.00, not epoch 12 with 50\.00"):
        trial.check_weights({"row": {"epoch": epoch, **values, "val_rsum": 51.0}})
