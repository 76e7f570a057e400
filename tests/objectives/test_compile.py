"""One graph without a break: no value leaves the device during a step, and no branch depends on one."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from torch.nn.functional import normalize
from goalgrid.objectives import build

torch.manual_seed(0)
image, text = (normalize(torch.randn(8, 4), dim=1).requires_grad_() for _ in range(2))
for name in ("sig-ms_cir", "lin-ms_con", "selhn", "adopt"):
    expected = torch.autograd.grad(build(name, variant="released")(image, text), (image, text))
    step = torch.compile(build(name, variant="released"), backend="aot_eager", fullgraph=True)
    for found, eager in zip(torch.autograd.grad(step(image, text), (image, text)), expected):
        torch.testing.assert_close(found, eager)
"""


@pytest.mark.gate
def test_a_step_compiles_to_one_graph() -> None:
    """In a process of its own, without the type checks of the tests, which are no part of the graph."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
