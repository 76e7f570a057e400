"""Notebooks: the tour runs from its first cell to its last, and the stop button leaves a grid that can go on."""

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goalgrid

from ..conftest import ROOT

TOUR = ROOT / "docs" / "tour.ipynb"


def test_the_tour_is_kept_with_its_outputs(tmp_path: Path) -> None:
    content = TOUR.read_text(encoding="utf-8")
    assert content.count('"image/png"') == 1
    assert content.count("12 trials: 12 done") == 2  # as text and as HTML
    with pytest.raises(goalgrid.UserError) as told:
        goalgrid.load("demo", str(tmp_path)).table(metric="r2")
    assert f"goalgrid.UserError: {told.value}" in content


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {name for output in shown for name in output.get("data", ())} >= {"text/html", "text/markdown", "image/png"}


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Any]:
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.start_kernel(cwd=str(tmp_path))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.parametrize("here", [False, True])
def test_the_stop_button_leaves_a_trial_that_goes_on(kernel: Any, here: bool, tmp_path: Path) -> None:
    client = kernel.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    axes = {"seeds": [0], "objectives": ["con_con"], "recipes": ["cnn-bow"], "train.epochs": 500}
    code = f"import goalgrid\ngrid = goalgrid.load('demo', set={axes})\ngrid.run(here={here}, mlflow_uri='')"
    client.execute(code, stop_on_error=False)
    until = time.monotonic() + 120
    while not list(tmp_path.glob("runs/trials/*/last.ckpt")) and time.monotonic() < until:
        time.sleep(0.2)
    kernel.interrupt_kernel()
    with pytest.raises(AssertionError, match=r"KeyboardInterrupt: grid 'demo@.*': the same call goes on"):
        _shown(client, until)
    client.execute("grid")
    assert _shown(client, until) == "1 trial: 1 interrupted"
    client.execute("grid.plan()")
    assert "1 x interrupted at epoch" in _shown(client, until)
    client.stop_channels()


def _shown(client: Any, until: float) -> str:
    """What the cell that is run shows at its end, without the name of the grid."""
    while time.monotonic() < until:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        assert message["msg_type"] != "error", "{ename}: {evalue}".format(**message["content"])
        if message["msg_type"] == "execute_result":
            return str(message["content"]["data"]["text/plain"]).partition(": ")[2]
    raise AssertionError("the cell shows nothing")
