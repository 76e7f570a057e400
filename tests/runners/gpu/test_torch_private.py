"""A torch without a part that it never promised: no estimates for a GPU, in a line, and training as ever."""

import subprocess
import sys

import pytest

HIDING = """
import sys, torch
sys.modules["{module}"] = None
from goalgrid.app import main
main()
"""


@pytest.mark.parametrize(
    "module", ["torch._subclasses.fake_tensor", "torch.utils._python_dispatch", "torch.utils._pytree"]
)
def test_sizes_say_what_is_missing(module: str) -> None:
    command = [sys.executable, "-c", HIDING.format(module=module), "recipes", "--parameters", "cnn-bow"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "are not possible with torch" in line
    assert module in line


def test_training_imports_none_of_them() -> None:
    script = """
import sys, torch
sys.modules.update(dict.fromkeys(["goalgrid.runners.gpu.torch_private", "goalgrid.runners.gpu.trace"]))
import goalgrid.runners.launch.launch, goalgrid.runners.trial.run
"""
    subprocess.run([sys.executable, "-c", script], check=True)
