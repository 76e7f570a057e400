"""How a launch ends where processes on other machines hold the trials that are left."""

import pytest

from goalgrid.grid.store import attempts
from goalgrid.grid.store.home import Home

from ...states import attempt
from ..conftest import PAIR, Verb


@pytest.mark.gate
def test_a_launch_leaves_no_trial_to_a_process_that_has_just_died(
    pair: Home, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease looks live for a while, but is never renewed: nobody goes on with the trial."""
    monkeypatch.setattr(attempts, "LEASE_SECONDS", 10.0)
    pair.trials()[0].done.unlink()
    attempt(pair.trials()[0], machine="elsewhere")
    left = verb("run", "demo", *PAIR, "--here", "--mlflow-uri", "", runs=pair)
    assert "2 trials: 1 done, 1 interrupted" in left.stderr
    assert left.exit_code == 3, left.stderr
