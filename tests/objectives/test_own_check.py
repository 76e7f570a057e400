"""The check of a user's own loss: ours pass it, and a loss that is wrong fails the line that says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grid import uses
from objectives.own_check import CHECKS, verdicts

HEAD = "import torch\nimport goalgrid\n\n\n"
TRIPLETS = '@goalgrid.objective("mine")\ndef mine(t):\n    return '
SCORES = '@goalgrid.objective("mine", on="scores")\ndef mine(scores):\n    return '


@pytest.fixture(autouse=True)
def nothing_stays_known() -> Iterator[None]:
    yield
    uses.activate([])


def failing(folder: Path, text: str) -> dict[str, str]:
    (folder / "losses.py").write_text(HEAD + text + "\n", encoding="utf-8")
    uses.activate([uses.read("losses.py", folder)])
    return {verdict.check: verdict.text for verdict in verdicts("mine") if not verdict.holds}


@pytest.mark.parametrize(
    "text",
    [
        f"{TRIPLETS}torch.relu(t.s_neg - t.s_pos + 0.2)",
        f"{SCORES}torch.nn.functional.cross_entropy(9 * scores, torch.arange(len(scores)))",
        '@goalgrid.objective("mine", on="all")\ndef mine(t):\n    return (3 * (t.s_neg - t.s_pos)).exp().sum(-1)',
    ],
)
def test_a_right_loss_passes(text: str, tmp_path: Path) -> None:
    assert failing(tmp_path, text) == {}


WRONG = {
    "a detached part": (f"{TRIPLETS}t.s_neg.detach() * (t.s_neg - t.s_pos)", "gradient", "A detached part"),
    "the first pair counts twice": (
        f"{SCORES}scores.sum() - scores[0].sum() / 2",
        "permutation",
        "with the pairs in another order",
    ),
    "another value each time": (f"{TRIPLETS}t.s_neg * torch.rand(1) - t.s_pos", "permutation", "the same batch gives"),
    "a root at a full score": (
        f"{TRIPLETS}(2 - 2 * t.s_pos).clamp(min=0).sqrt() + torch.relu(t.s_neg)",
        "half precision",
        "all in one point: the gradient is not finite",
    ),
    "an overflow": (
        f"{TRIPLETS}(100 * (t.s_neg - t.s_pos)).exp()",
        "half precision",
        "torch.bfloat16 embeddings, random",
    ),
    "a square of -inf": (f"{TRIPLETS}torch.relu(t.s_neg.square() - t.s_pos)", "empty sets", "mining = all"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_loss_fails_the_line_that_says_so(mistake: str, tmp_path: Path) -> None:
    text, check, said = WRONG[mistake]
    found = failing(tmp_path, text)
    assert said in found[check]


def test_an_error_of_the_loss_is_told_with_its_line(tmp_path: Path) -> None:
    found = failing(tmp_path, f"{SCORES}scores @ torch.ones(3)")
    assert found.keys() == CHECKS.keys()
    assert found["gradient"].endswith(f"({tmp_path / 'losses.py'}, line 7)")


def test_a_loss_on_scores_that_returns_no_scalar_is_told(tmp_path: Path) -> None:
    assert (
        "returns the loss of the batch, a scalar; this one returned (7,)"
        in failing(tmp_path, f"{SCORES}scores.sum(1)")["gradient"]
    )
