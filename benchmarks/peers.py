"""Ray Tune as people use it, a process of its own to be measured in: importing this sets what Ray and torch read."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ |= {
    "PYTHONPATH": os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")])),
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}

WORKERS = 2


def tune_alone(train: Callable[[int], object], trials: int, *, reuse: bool) -> list[float]:
    """Call a function with each number as a Tune trial, `WORKERS` at a time; when each trial ended, monotonic seconds.

    Args:
        reuse: Tune's actors, which it does not by default.
    """
    import ray
    from ray import tune

    def trainable(config: dict[str, int]) -> None:
        train(config["number"])
        tune.report({"value": 1.0})

    class Clock(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: list[object], trial: object, **info: object) -> None:
            ends.append(time.monotonic())

    ends: list[float] = []
    ray.init("local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as storage:
        tune.Tuner(
            trainable,
            param_space={"number": tune.grid_search(list(range(trials)))},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=storage, verbose=0, callbacks=[Clock()]),
        ).fit()
    ray.shutdown()
    return ends
