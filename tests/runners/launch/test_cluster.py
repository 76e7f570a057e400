"""On a Ray cluster of several nodes, started as by hand on this machine: where jobs go, and what a lost node costs."""

import json
import os
import platform
import secrets
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import psutil
import pytest
import torch

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.runners.launch.feature_extraction import compute_features, feature_jobs

from ...conftest import LASTING, ROOT, Goalgrid
from ...goalgrid.processes import start

pytestmark = pytest.mark.slow

RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=80000000"]
SHORT = ("--set", 'objectives=["sig-ms_cir"]', "--mlflow-uri", "", *LASTING)
ONE = (*SHORT, "--set", "seeds=[0]")
THREE = (*SHORT, "--set", "seeds=[0,1,2]", "--set", "train.epochs=16")

ASK_GPUS = """
import os
from goalgrid.runners.launch.ray_tune import RayTune
from goalgrid.runners.trial.stopping import Stop
with RayTune(Stop(), address=os.environ["RAY_ADDRESS"], grace=1.0, warn=print) as driver:
    assert driver.on_gpus(["fast"], lambda: os.getpid()) == []
    print(len({pid for _ in range(2) for pid in driver.on_gpus([], lambda: os.getpid())}))
"""

EXTRACT = """
import os, sys
from functools import partial
from pathlib import Path
import psutil
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.retrieval.features import ImageSource
from goalgrid.runners.launch import feature_extraction
from goalgrid.runners.launch.ray_tune import RayTune
from goalgrid.runners.trial.stopping import Stop
from goalgrid.runners.watching.view import View

def refused(*_):
    raise AssertionError("the driver's process read the pictures")

def killing(spread, *arguments):
    # of the processes on both GPUs, the first that has answered twice is killed
    mapped = spread(*arguments)
    def results(units):
        seen = []
        for unit, blocks in mapped(units):
            seen.append(unit)
            if len(seen) == 2:
                next(p for p in psutil.process_iter(["name"]) if "_Caller" in (p.info["name"] or "")).kill()
            yield unit, blocks
        print(len(seen), len(set(seen)))
    return results

grid = load("demo", ['recipes=["vsepp-r152-tiny"]', "model.image.size=32", "model.image.crops=4"])
jobs = feature_extraction.feature_jobs(grid, expand(grid), Home(Path(sys.argv[1])))
ImageSource.built = refused
with RayTune(Stop(), address=os.environ["RAY_ADDRESS"], grace=1.0, warn=print) as driver:
    feature_extraction.compute_features(jobs, View(), partial(killing, partial(driver.spread, [])))
"""

VERSION = """
import json, sys
from ray._raylet import GcsClient

head, key = GcsClient(address=sys.argv[1]), b"CLUSTER_METADATA"
metadata = json.loads(head.internal_kv_get(key, b"cluster"))
head.internal_kv_put(key, json.dumps(metadata | {"python_version": sys.argv[2]}).encode(), True, b"cluster")
"""

RESOURCES = "import ray; ray.init(log_to_driver=False); print([(n['NodeID'], n['Resources']) for n in ray.nodes()])"


@dataclass(frozen=True)
class Cluster:
    """A head without CPUs, and nodes as tests start them."""

    address: str

    def nodes_with(self, resource: str) -> set[str]:
        """Ray's ids of the nodes that have it."""
        listed = subprocess.run([sys.executable, "-c", RESOURCES], capture_output=True, text=True, check=True)
        return {node for node, resources in eval(listed.stdout) if resource in resources}


@contextmanager
def started(*arguments: str, before: str = "", ready: Callable[[], bool] = lambda: True) -> Iterator[psutil.Process]:
    """`ray start`, and all its processes killed at the end; `before` runs first, in the same mount namespace."""
    command = ["unshare", "-m", "sh", "-c", f'{before}\nexec "$@"', "sh"] if before else []
    process = subprocess.Popen(
        [*command, *RAY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        said = []
        while "This command will now block" not in (line := process.stdout.readline()):
            said.append(line)
            assert line, "".join(said)
        yield psutil.Process(process.pid)
    finally:
        if process.poll() is None:
            kill(psutil.Process(process.pid))
        process.communicate()


def kill(node: psutil.Process) -> None:
    """As if its plug were pulled."""
    for process in [node, *node.children(recursive=True)]:
        process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head, and a node with one CPU and a resource `fast`."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    environment = {
        "RAY_ADDRESS": address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        temp = ("--temp-dir", f"/tmp/gg-{port}")
        with (
            started("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", *temp),
            node(address, "fast"),
        ):
            yield Cluster(address)


@contextmanager
def node(address: str, resource: str, before: str = "") -> Iterator[psutil.Process]:
    """One more node with one CPU, and one of this resource."""
    resources = json.dumps({resource: 1})
    with started(f"--address={address}", "--num-cpus=1", f"--resources={resources}", before=before) as process:
        yield process


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid) -> Home:
    """The grid of these tests, trained in one process."""
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    finished = goalgrid("run", "demo", *THREE, "--here", runs=home.path)
    assert finished.returncode == 0, finished.stderr
    return home


def leases(runs: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(runs.glob("trials/*/attempts/[0-9][0-9][0-9].json"))]


def test_a_job_goes_only_to_nodes_that_have_what_it_asks_for(
    cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    with node(cluster.address, "slow"):
        fast = cluster.nodes_with("fast")
        asks = ("--set", 'resources.custom={"fast" = 0.5}')
        finished = goalgrid("run", "demo", *SHORT, "--set", "seeds=[0,1]", *asks, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert len(leases(tmp_path)) == 2
    assert {lease["node"] for lease in leases(tmp_path)} == fast
    (kept,) = Home(tmp_path).path.glob("grids/*/launches/*/launch.json")
    assert {lease["launch_id"] for lease in leases(tmp_path)} == {kept.parent.name}


@pytest.mark.skipif(torch.cuda.is_available(), reason="its GPU is one that Ray was told of, and torch does not see")
def test_memory_is_probed_where_a_gpu_is_in_a_process_that_ends_then(
    cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    with started(f"--address={cluster.address}", "--num-cpus=1", "--num-gpus=1"):
        asked = subprocess.run([sys.executable, "-c", ASK_GPUS], capture_output=True, text=True, cwd=ROOT)
        assert asked.stdout.split() == ["2"], asked.stderr
        there = cluster.nodes_with("GPU")
        finished = goalgrid("run", "demo", *ONE, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "torch does not see the expected GPU" in finished.stderr
    assert {lease["node"] for lease in leases(tmp_path)} == there
    assert not Home(tmp_path).memory.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="its GPU is one that Ray was told of, and torch does not see")
def test_frozen_networks_run_on_the_gpus_and_a_killed_process_changes_no_byte(cluster: Cluster, tmp_path: Path) -> None:
    with started(f"--address={cluster.address}", "--num-cpus=2", "--num-gpus=2"):
        command = [sys.executable, "-c", EXTRACT, str(tmp_path / "there")]
        finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["7", "7"], "each unit once"
    grid = load("demo", ['recipes=["vsepp-r152-tiny"]', "model.image.size=32", "model.image.crops=4"])
    compute_features(feature_jobs(grid, expand(grid), Home(tmp_path / "here")), View())
    here, there = (sorted((tmp_path / name / "features").rglob("*.npy")) for name in ("here", "there"))
    assert [path.name for path in here] == ["test.npy", "train.npy", "val.npy"]
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


@pytest.mark.skipif(torch.cuda.is_available(), reason="its GPU is one that Ray was told of, and torch does not see")
def test_recipes_of_different_shares_of_a_gpu_train_side_by_side(
    cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    two = ("--set", 'recipes=["frozen-bow","cnn-bow"]', "--set", "seeds=[0,1]", "--set", "train.epochs=12")
    with started(f"--address={cluster.address}", "--num-cpus=2", "--num-gpus=1"):
        finished = goalgrid("run", "demo", *SHORT, *two, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    times = defaultdict[str, list[tuple[str, str]]](list)
    for folder in (tmp_path / "trials").iterdir():
        (attempt,) = Home(tmp_path).trial(folder.name).attempts()
        ended = json.loads(attempt.end.read_text())["ended"]
        times[folder.name.split("_")[1]].append((str(attempt.content()["began"]), ended))
    assert {recipe: len(spans) for recipe, spans in times.items()} == {"frozen-bow": 2, "cnn-bow": 2}
    pairs = product(times["frozen-bow"], times["cnn-bow"])
    assert any(one[0] < other[1] and other[0] < one[1] for one, other in pairs)


@pytest.mark.parametrize(
    ("mode", "token", "said", "lines"),
    [
        ("token", secrets.token_hex(32), "the Ray cluster at {} rejects this host's token. Copy", 2),
        ("", "", "the Ray cluster at {} rejects this host's token. Copy", 2),
        ("token", "", "RAY_AUTH_MODE=token, but this host has no token of the Ray cluster at '{}'. Copy", 1),
    ],
)
def test_a_wrong_token_or_none_is_told_in_two_lines_at_most(
    mode: str, token: str, said: str, lines: int, cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The other line is Ray's own, of its compiled part; without the check Ray asks again for 20 seconds."""
    monkeypatch.setenv("HOME", str(tmp_path))  # without a token of an earlier Ray
    for name, value in (("RAY_AUTH_TOKEN", token), ("RAY_AUTH_MODE", mode)):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    finished = goalgrid("run", "demo", *ONE, runs=tmp_path)
    assert finished.returncode == 2
    assert f"error: {said.format(cluster.address)}" in finished.stderr
    assert len(finished.stderr.splitlines()) == 1 + lines  # and what is planned
    assert not list(tmp_path.glob("trials/*"))


def test_what_no_node_has_is_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    asks = ("--set", 'resources.custom={"huge" = 1}', "--set", "resources.cpu=2")
    refused = goalgrid("run", "demo", *ONE, *asks, runs=tmp_path)
    assert refused.returncode == 2
    assert "a job requests 2 CPU and 1 huge, but the largest node has 1 CPU and 0 huge." in refused.stderr
    assert not (tmp_path / "trials").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.0.0.1:8265"])
def test_a_wrong_address_is_a_message_at_once(address: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    refused = goalgrid("run", "demo", *ONE, "--address", address, runs=tmp_path, timeout=30)
    assert refused.returncode == 2
    assert repr(address) in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_driver_of_another_python_is_told_both_versions(cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid) -> None:
    def started_with(python: str) -> None:
        """Let the head say that it was started with this Python."""
        subprocess.run([sys.executable, "-c", VERSION, cluster.address, python], check=True)

    started_with("3.11.99")
    try:
        refused = goalgrid("run", "demo", *ONE, runs=tmp_path)
    finally:
        started_with(platform.python_version())
    assert refused.returncode == 2, refused.stderr
    (told,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert all(f"Python: {version}" in told for version in ("3.11.99", platform.python_version()))
    assert "Every node needs the driver's exact versions of Python and Ray" in told
    assert "Traceback" not in refused.stderr


def test_a_lost_node_costs_no_trial_and_changes_no_number(
    cluster: Cluster, undisturbed: Home, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    with node(cluster.address, "doomed") as doomed:
        (lost,) = cluster.nodes_with("doomed")
        run = start("run", "demo", *THREE, runs=tmp_path)
        checkpoint = wait_for(lambda: checkpoint_on(lost, tmp_path))
        kill(doomed)
        _, talk = run.communicate(timeout=120)
    assert run.returncode == 0, talk
    assert f"retry   {checkpoint.parent.name}: node-lost: node {socket.gethostname()} is gone" in talk
    for folder in sorted((tmp_path / "trials").iterdir()):
        made = Home(tmp_path).trial(folder.name)
        outcomes = [attempt.outcome() for attempt in made.attempts()]
        assert outcomes == (["node-lost", "done"] if folder == checkpoint.parent else ["done"])
        assert numbers(made.record).equals(numbers(undisturbed.trial(folder.name).record))
    resumed = Home(tmp_path).trial(checkpoint.parent.name).attempts()[1]
    assert "resumes from step" in resumed.log.read_text()
    assert resumed.content()["node"] != lost
    assert len(list((tmp_path / "trials").iterdir())) == len(list((undisturbed.path / "trials").iterdir())) == 3


def checkpoint_on(node: str, runs: Path) -> Path | None:
    """The checkpoint of a trial that is trained there."""
    for lease in runs.glob("trials/*/attempts/001.json"):
        checkpoint = lease.parent.parent / "last.ckpt"
        if json.loads(lease.read_text())["node"] == node and checkpoint.exists():
            return checkpoint
    return None


def test_a_node_that_joins_later_gets_a_job_beside_those_that_run(cluster: Cluster, tmp_path: Path) -> None:
    run = start("run", "demo", *THREE, runs=tmp_path)
    wait_for(lambda: tmp_path if leases(tmp_path) else None)
    with node(cluster.address, "late"):
        (late,) = cluster.nodes_with("late")
        _, talk = run.communicate(timeout=300)
    assert run.returncode == 0, talk
    assert late in {lease["node"] for lease in leases(tmp_path)}
    assert [attempt.outcome() for trial in Home(tmp_path).trials() for attempt in trial.attempts()] == ["done"] * 3


def wait_for(look: Callable[[], Path | None], seconds: float = 180.0) -> Path:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never seen within {seconds:g} s")


def numbers(record: Path) -> pd.DataFrame:
    """What a trial found out, without how long that took and where."""
    columns = pd.read_parquet(record)
    kept = [name for name in columns if name.startswith(("val_", "test_", "other_"))]
    return columns[["trial_id", "selected_epoch", "steps", *kept]].map(lambda value: str(value))


def can_hide_folders() -> bool:
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_hide_folders(), reason="needs the right to make a mount namespace (root)")
def test_a_node_without_the_runs_folder_is_named_and_a_late_one_waited_for(
    cluster: Cluster, tmp_path: Path, goalgrid: Goalgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node lives in a mount namespace: an empty file system hides the folder there until a file appears.

    What the driver keeps for itself is hidden there for good, as on another host.
    """
    runs, own, shown = tmp_path / "runs", tmp_path / "own", tmp_path / "shown"
    runs.mkdir()
    own.mkdir()
    late = f"(while [ ! -e {shown} ]; do sleep 0.1; done; umount {runs}) &"
    hide = f"mount -t tmpfs none {own}; mount -t tmpfs none {runs}; {late}"
    with node(cluster.address, "far", before=hide):
        monkeypatch.setenv("TMPDIR", str(own))
        asks = (*ONE, "--set", 'resources.custom={"far" = 1}')
        refused = goalgrid("run", "demo", *asks, "--set", "reliability.folder_seconds=0.5", runs=runs)
        assert refused.returncode == 2
        assert f"error: node {socket.gethostname()} (" in refused.stderr
        assert f"this node does not see the runs folder {runs} that the launch writes to" in refused.stderr
        assert not (runs / "trials").exists()

        run = start("run", "demo", *asks, runs=runs)
        time.sleep(6)
        assert run.poll() is None
        assert not (runs / "trials").exists()
        shown.touch()
        _, talk = run.communicate(timeout=60)
        assert run.returncode == 0, talk


@pytest.mark.skipif(not can_hide_folders(), reason="needs the right to make a mount namespace (root)")
def test_a_node_that_lacks_the_data_at_the_start_is_left_out_with_a_warning(
    cluster: Cluster, few_pictures: Path, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    few = ("--set", f'data.few.root="{few_pictures}"', "--set", 'datasets=["few"]', "--set", "dataset.train_images=40")
    blind = f"mount -t tmpfs none {few_pictures}"
    with node(cluster.address, "blind", before=blind):
        fast = cluster.nodes_with("fast")
        finished = goalgrid("run", "demo", *SHORT, "--set", "seeds=[0,1]", *few, runs=tmp_path / "runs")
        asks = ("--set", 'resources.custom={"blind" = 1}')
        refused = goalgrid("run", "demo", *SHORT, "--set", "seeds=[2]", *few, *asks, runs=tmp_path / "runs")
    assert finished.returncode == 0, finished.stderr
    assert f"gets no jobs: this node does not see {few_pictures}. Data must be" in finished.stderr
    assert [lease["node"] for lease in leases(tmp_path / "runs")] == [*fast] * 2
    assert refused.returncode == 2
    assert f"): this node does not see {few_pictures}." in refused.stderr


def test_a_driver_that_is_killed_on_a_cluster_is_followed_by_the_next(
    cluster: Cluster, undisturbed: Home, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    first = ("run", "demo", *THREE, "--only", "seed=0")
    run = start(*first, runs=tmp_path)
    checkpoint = wait_for(lambda: next(tmp_path.glob("trials/*/last.ckpt"), None))
    run.kill()
    run.communicate()
    (lease,) = leases(tmp_path)
    psutil.wait_procs([psutil.Process(int(str(lease["pid"])))] if psutil.pid_exists(int(str(lease["pid"]))) else [], 30)
    again = goalgrid(*first, runs=tmp_path)
    assert again.returncode == 0, again.stderr
    made = Home(tmp_path).trial(checkpoint.parent.name)
    # A cluster that loses a driver ends its workers: now with SIGTERM and time for a checkpoint, now at once.
    ended, done = (attempt.outcome() for attempt in made.attempts())
    assert ended in {"killed", "pre-empted"}
    assert done == "done"
    assert numbers(made.record).equals(numbers(undisturbed.trial(made.trial_id).record))
