"""A torch without a part that it never promised: no estimates for a GPU, in a line, and training as ever."""

import subprocess
import sys

import pytest

MODULES = ("torch.utils._python_dispatch", "torch.utils._pytree")
HIDING = """
import sys, torch
folder = "goalgrid.planning.gpu"
sys.modules[folder] = None
import goalgrid.runners.launch.launch, goalgrid.runners.trial.run, goalgrid.runners.gpu.architectures
del sys.modules[folder]
from goalgrid.cli.app import main
sys.argv[1:], hidden = ["plan", "demo", "--device", "h100"], sys.argv[1:]
for module in hidden:
    for name in [name for name in sys.modules if name.startswith(folder)]:
        del sys.modules[name]
    before, sys.modules[module] = sys.modules.get(module), None
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
    sys.modules[module] = before
"""


@pytest.mark.gate
def test_training_imports_none_of_them_and_a_plan_says_what_is_missing() -> None:
    ended = subprocess.run([sys.executable, "-c", HIDING, *MODULES], capture_output=True, text=True, check=True)
    for module, line in zip(MODULES, ended.stderr.splitlines(), strict=True):
        assert "GPU estimates are not possible with torch" in line
        assert module in line
