"""The check of a user's own: what is right passes it, and what is wrong fails the line that says so."""

import re
from pathlib import Path

import pytest
import torch

from goalgrid.grid import plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.image_encoders import OwnImageSettings
from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.grid.settings.user_modules import WrongReturn
from goalgrid.objectives import build
from goalgrid.retrieval.encoders.pooling import pooling
from goalgrid.retrieval.own_networks import image_encoder
from goalgrid.runners.selftest.objective_check import OF_OBJECTIVES, Broken
from goalgrid.runners.selftest.own_check import verdicts

from ...conftest import swapped

HEAD = "import torch\nimport goalgrid\n\n\n"
TRIPLETS = '@goalgrid.objective("mine")\ndef mine(t):\n    return '
SCORES = '@goalgrid.objective("mine", on="scores")\ndef mine(scores):\n    return '


def define(folder: Path, text: str) -> Catalog:
    (folder / "losses.py").write_text(HEAD + text + "\n", encoding="utf-8")
    return Catalog.of([plugins.read("losses.py", folder)])


def failing(folder: Path, text: str) -> dict[str, str]:
    known = define(folder, text)
    return {verdict.check: verdict.text for verdict in verdicts("mine", known) if not verdict.holds}


@pytest.mark.parametrize(
    "text",
    [
        f"{TRIPLETS}torch.relu(t.s_neg - t.s_pos + 0.2)",
        f"{SCORES}torch.nn.functional.cross_entropy(9 * scores, torch.arange(len(scores)))",
        "class Mine(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.ones(()))\n\n    def forward(self, t):\n"
        "        scaled = (self.scale * t.finite().s_neg).masked_fill(~t.exists, -torch.inf)\n"
        "        return torch.relu(scaled - t.s_pos + 0.2)\n\n\n"
        'goalgrid.objective("mine")(Mine)',
        '@goalgrid.objective("mine")\nclass Mine(torch.nn.Module):\n    def forward(self, t):\n'
        "        return torch.relu(t.s_neg - t.s_pos + 0.2)",
        '@goalgrid.objective("mine", on="all")\ndef mine(t):\n    return (3 * (t.s_neg - t.s_pos)).exp().sum(-1)',
    ],
)
def test_a_right_loss_passes(text: str, tmp_path: Path) -> None:
    assert failing(tmp_path, text) == {}


def test_the_scale_of_a_mean_stands_beside_that_of_sums(tmp_path: Path) -> None:
    """A loss of ours under a name of one's own has the norm of ours; its mean over the 64 pairs a 64th."""
    sums = f"{TRIPLETS}torch.relu(t.s_neg - t.s_pos + 0.2)"
    norms = []
    for text in (sums, sums.replace('"mine"', '"mine", reductions=("mean", "mean")')):
        known = define(tmp_path, text)
        (scale,) = (verdict for verdict in verdicts("mine", known) if verdict.check == "scale")
        own, hinge, clip = re.findall(
            r"norm ([\d.]+) at .* triplet-hn ([\d.]+), .* train.clip_norm is (\d)", scale.text
        )[0]
        norms.append(float(own))
        assert (norms[0], clip) == (float(hinge), "2")
        assert scale.holds
        assert scale.remark == ('write below [set]: "train.mean_loss" = true' in scale.text) == ("mean" in text)
    assert norms[0] == pytest.approx(64 * norms[1], rel=1e-2)


def test_the_gradient_of_a_declared_surrogate_is_only_finite(tmp_path: Path) -> None:
    """dl/ds_neg = sigmoid(s_neg - s_pos), held constant: GOAL's way."""
    text = f"{TRIPLETS}(t.s_neg - t.s_pos).sigmoid().detach() * (t.finite().s_neg - t.s_pos)"
    declared = text.replace('"mine"', '"mine", surrogate=True')
    gradient = OF_OBJECTIVES["gradient"]
    known = define(tmp_path, text)
    with pytest.raises(Broken, match=r"If this is intended: @goalgrid.objective\(..., surrogate=True\)"):
        gradient("mine", known)
    assert gradient("mine", define(tmp_path, declared)) == "finite; declared with surrogate=True"
    known = define(tmp_path, declared.replace("* (t.finite", "* float('nan') * (t.finite"))
    with pytest.raises(Broken, match="nan"):
        gradient("mine", known)


MODULE = "class Mine(torch.nn.Module):\n"
LINE = "        self.line = torch.nn.Linear({}, dim)\n"
FIRST_TRIES = {
    "a class of image and text": (
        f'@goalgrid.objective("mine")\n{MODULE}    def forward(self, image, text):\n        return image @ text.T',
        r"Mine\.forward takes \(image, text\) after self; a loss takes one argument, t, which has t\.s_pos",
    ),
    "a class without forward": (
        f'@goalgrid.objective("mine")\n{MODULE}    def loss(self, t):\n        return t.s_neg',
        r"class Mine has no forward\(self, t\)",
    ),
    "triplets as a tensor": (
        f"{TRIPLETS}torch.nn.functional.relu(t)",
        r"must be Tensor, not Triplets \(.*losses\.py, line 7: return torch.*\)\. Read t\.s_pos and t\.s_neg",
    ),
    "triplets by index": (f"{TRIPLETS}t[0] @ t[1].T", r"\(.*losses\.py, line 7: return t\[0\].*\. Read t\.s_pos"),
    "no constructor of the module": (
        f'@goalgrid.objective("mine")\n{MODULE}    def __init__(self):\n        self.tau = torch.nn.Parameter()\n'
        "    def forward(self, t):\n        return self.tau * t.s_neg",
        r"line 8: self\.tau.*\)\. Begin the constructor with super\(\)\.__init__\(\)",
    ),
    "pixels of 8 bits in a layer": (
        f'@goalgrid.image_encoder("mine")\n{MODULE}    def __init__(self, shape, dim):\n        super().__init__()\n'
        f"{LINE.format('3 * 64 * 64')}    def forward(self, images):\n        return self.line(images.flatten(1))",
        r"\(.*losses\.py, line 11: return self\.line.*\. Begin with images = images\.float\(\) / 255",
    ),
    "the mean of pixels of 8 bits": (
        f'@goalgrid.image_encoder("mine")\n{MODULE}    def __init__(self, shape, dim):\n        super().__init__()\n'
        f"{LINE.format(3)}    def forward(self, images):\n        return self.line(images.mean((2, 3)))",
        r"\. Begin with images = images\.float\(\) / 255",
    ),
    "ids in a layer": (
        f'@goalgrid.text_encoder("mine")\n{MODULE}    def __init__(self, words, dim):\n        super().__init__()\n'
        f"{LINE.format(9)}    def forward(self, ids, lengths):\n        return self.line(ids)",
        r"line 11: return self\.line\(ids\)\).*\. Embed the ids first with torch\.nn\.Embedding\(words, width\)",
    ),
}


@pytest.mark.parametrize("mistake", FIRST_TRIES)
def test_a_first_try_is_told_its_line_and_what_to_write(mistake: str, tmp_path: Path) -> None:
    text, said = FIRST_TRIES[mistake]
    try:
        known = define(tmp_path, text)
        told = next(verdict.text for verdict in verdicts("mine", known) if not verdict.holds)
    except UserError as error:
        told = str(error)
    assert re.search(said, told)
    assert "site-packages" not in told


LEARNT = (
    "class Mine(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.tau = torch.nn.Parameter(torch.tensor(10.0))\n\n    def forward(self, t):\n"
    "        z = %s\n        return z.logsumexp(-1) - z[..., 0]\n\n\n"
    'goalgrid.objective("mine", on="all")(Mine)'
)
WRONG = {
    "-inf times a parameter": (
        LEARNT % "torch.cat([t.s_pos, t.s_neg], -1) * self.tau",
        "empty sets",
        "two pairs: the gradient of its parameter tau is not finite",
    ),
    "a parameter that is detached in part": (
        LEARNT % "torch.cat([t.s_pos * self.tau, t.s_neg * self.tau.detach()], -1)",
        "gradient",
        "Usual causes: a detach",
    ),
    "a detached part": (f"{TRIPLETS}t.s_neg.detach() * (t.s_neg - t.s_pos)", "gradient", "Usual causes: a detach"),
    "the first pair counts twice": (
        f"{SCORES}scores.sum() - scores[0].sum() / 2",
        "permutation",
        "the loss changes with the order of the pairs",
    ),
    "another value each time": (f"{TRIPLETS}t.s_neg * torch.rand(1) - t.s_pos", "permutation", "the same batch gives"),
    "a root at a full score": (
        f"{TRIPLETS}(2 - 2 * t.s_pos).clamp(min=0).sqrt() + torch.relu(t.s_neg)",
        "half precision",
        "all in one point: the gradient is not finite",
    ),
    "a value that is nan": (f"{TRIPLETS}t.s_neg * torch.nan", "gradient", "mining = hardest: the loss is nan"),
    "an overflow": (
        f"{TRIPLETS}(100 * (t.s_neg - t.s_pos)).exp()",
        "half precision",
        "torch.bfloat16 embeddings, random",
    ),
    "a value that is -inf": (
        '@goalgrid.objective("mine", on="all")\ndef mine(t):\n    return t.s_neg - t.s_pos',
        "gradient",
        "the loss is -inf. t.s_neg is -inf for missing negatives: use t.finite(), and mask with t.exists",
    ),
    "a square of -inf": (f"{TRIPLETS}torch.relu(t.s_neg.square() - t.s_pos)", "empty sets", "mining = all"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_loss_fails_the_line_that_says_so(mistake: str, tmp_path: Path) -> None:
    text, check, said = WRONG[mistake]
    found = failing(tmp_path, text)
    assert said in found[check]


STATEFUL = """@goalgrid.objective("mine", on="scores")
class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, scores):
        if self.training:
            self.calls += 1
        return (1 + self.calls) * torch.nn.functional.cross_entropy(9 * scores, torch.arange(len(scores)))"""
PLAIN = swapped(swapped(STATEFUL, 'register_buffer("calls", torch.zeros(()))', "calls = 0"), "if self.training", "if 1")
CLASS = swapped(PLAIN, "(torch.nn.Module)", "").replace("super().__init__()", "pass").replace("forward", "__call__")
CACHE = """@goalgrid.objective("mine", on="scores")
class Mine:
    targets = None

    def __call__(self, scores):
        if self.targets is None or len(self.targets) != len(scores):
            self.targets = torch.arange(len(scores))
        return torch.nn.functional.cross_entropy(scores, self.targets)"""
NOISE = """import random

import numpy


@goalgrid.objective("mine", on="scores")
def mine(scores):
    return scores.mean() * (torch.rand(()) + random.random() + numpy.random.rand())"""


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        (STATEFUL, set()),
        (CACHE, set()),
        (NOISE, {"gradient", "permutation"}),
        (PLAIN, {"gradient", "permutation", "weights"}),
        (CLASS, {"gradient", "permutation", "weights"}),
        (swapped(CACHE, "torch.arange(", "torch.randperm(").replace("scores))\n", "scores)).flip(0)\n"),
         {"permutation", "weights"}),
    ],
    ids=["buffer", "cache", "noise", "attribute", "plain class", "drawn at the first call"],
)  # fmt: skip
def test_a_loss_whose_state_no_checkpoint_holds_is_told(text: str, fails: set[str], tmp_path: Path) -> None:
    """What counts is whether a resumed training has the same values; random states are in checkpoints."""
    found = failing(tmp_path, text)
    assert found.keys() == fails
    if "weights" in fails:
        assert "register it as a buffer of a torch.nn.Module" in found["weights"]
    if "gradient" in fails:
        assert "a state that changes in evaluation" in found["permutation"]


def test_an_error_of_the_loss_is_told_with_its_line(tmp_path: Path) -> None:
    found = failing(tmp_path, f"{SCORES}scores @ torch.ones(3)")
    assert found.keys() == OF_OBJECTIVES.keys()
    assert found["gradient"].endswith(f"({tmp_path / 'losses.py'}, line 7: return scores @ torch.ones(3))")


@pytest.mark.parametrize("text", [f"{TRIPLETS}(t.s_neg - t.s_pos).mean()", f"{SCORES}scores.sum(1)"])
def test_a_mean_too_many_or_too_few_fails_all_lines_with_one_text(text: str, tmp_path: Path) -> None:
    found = failing(tmp_path, text)
    assert found.keys() == OF_OBJECTIVES.keys()
    assert len(set(found.values())) == 1


@pytest.mark.filterwarnings("error:Converting a tensor with requires_grad")
def test_a_root_of_negative_numbers_has_no_finite_norm(tmp_path: Path) -> None:
    found = failing(tmp_path, f"{TRIPLETS}(t.s_neg - t.s_pos - 3).sqrt()")
    assert found["scale"] == "the gradient norm is nan at the start of cnn-bow"
    assert found["gradient"] == "mining = hardest: the loss is nan"


@pytest.mark.parametrize(
    ("on", "value", "said"),
    [
        ("hardest", "torch.relu(t.s_neg - t.s_pos + 0.2)[:, :3]", "gives (2, 3, 1) for triplets (2, 5, 1); it should"),
        ("hardest", "(t.s_neg - t.s_pos).mean()", "returns one number; return the value of each triplet"),
        ("hardest", "1 - t.s_pos", "gives (1, 5, 1) for triplets (2, 5, 1); it should give (2, 5, 1)"),
        ("hardest", "t.s_neg > t.s_pos", "gives (2, 5, 1) of torch.bool for triplets (2, 5, 1); it should give (2, 5,"),
        ("hardest", "3.0", "gives float for triplets (2, 5, 1); it should give a tensor of (2, 5, 1)"),
        ("hardest", "None", "gives None for triplets (2, 5, 1); it should give a tensor of (2, 5, 1)"),
        ("hardest", "t.s_neg.detach().numpy()", "gives ndarray for triplets (2, 5, 1); it should give a tensor of"),
        ("hardest", "(t.s_neg - t.s_pos).detach()", "gives a value without a gradient for triplets (2, 5, 1)"),
        ("all", "(t.s_neg - t.s_pos).exp().detach()", "gives a value without a gradient for triplets (5, 5)"),
        ("scores", "t.detach().sum()", "gives a value without a gradient for the scores of a batch, (5, 5)"),
        ("scores", "(t > 0).sum()", "gives () of torch.int64 for the scores of a batch, (5, 5); it should give one"),
        ("all", "(t.s_neg - t.s_pos).exp()[:3]", "gives (3, 5) for triplets (5, 5); it should give (5, 5)"),
        ("scores", "t[:3]", 'returns several numbers; with on="scores", return one, the loss of the batch'),
    ],
)
def test_a_loss_that_returns_what_cannot_be_learnt_from_does_not_train(
    on: str, value: str, said: str, tmp_path: Path
) -> None:
    known = define(tmp_path, f'@goalgrid.objective("mine", on="{on}")\ndef mine(t):\n    return {value}').objectives
    image, text = torch.nn.functional.normalize(torch.randn(2, 5, 4), dim=-1).requires_grad_()
    loss = build("mine", known)
    for call in (lambda: loss(image, text), lambda: loss.from_similarity(image @ text.T)):
        with pytest.raises(WrongReturn, match=re.escape(f"objective 'mine' in {tmp_path / 'losses.py'} {said}")):
            call()


def test_a_loss_without_a_gradient_has_a_value_where_nothing_learns(tmp_path: Path) -> None:
    known = define(tmp_path, f"{TRIPLETS}(t.s_neg - t.s_pos).detach()").objectives
    image, text = torch.nn.functional.normalize(torch.randn(2, 5, 4), dim=-1).requires_grad_()
    with torch.no_grad():
        assert build("mine", known)(image, text).isfinite()


@pytest.mark.parametrize("ends", ["raise SystemExit(0)", "raise KeyboardInterrupt"])
def test_a_loss_that_ends_the_process_fails_its_lines_alone(ends: str, tmp_path: Path) -> None:
    found = failing(tmp_path, f'@goalgrid.objective("mine")\ndef mine(t):\n    {ends}')
    assert found.keys() == OF_OBJECTIVES.keys()
    assert found["speed"].endswith(f"({tmp_path / 'losses.py'}, line 7: {ends})")


@pytest.mark.parametrize("shape", ["", ".sum(-1)", ".amax(-1, keepdim=True)"])
@pytest.mark.parametrize("on", ["hardest", "all"])
def test_a_loss_may_return_the_value_of_each_triplet_or_anchor(on: str, shape: str, tmp_path: Path) -> None:
    known = define(
        tmp_path, f'@goalgrid.objective("mine", on="{on}")\ndef mine(t):\n    return (t.s_neg - t.s_pos).exp(){shape}'
    )
    image, text = torch.nn.functional.normalize(torch.randn(2, 5, 4), dim=-1)
    assert build("mine", known.objectives)(image, text) > 0


@pytest.mark.parametrize("made", ["(values * present[..., None]).sum(1)[:3]", "values", "values.sum((1, 2)) > 0"])
@pytest.mark.parametrize("kind", ["function", "module"])
def test_a_pooling_that_returns_another_shape_is_refused_at_its_first_call(
    kind: str, made: str, tmp_path: Path
) -> None:
    module = f"""@goalgrid.pooling("mine")
class Mine(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, values, present):
        return {made}"""
    known = define(tmp_path, module if kind == "module" else POOLING + f"return {made}")
    pool = pooling(known.validated(PoolingSettings, {"pooling": "mine"}), 6)
    with pytest.raises(UserError, match=rf"pooling 'mine' in {tmp_path / 'losses.py'} gives .*; it should give \(4, 6"):
        pool(torch.randn(4, 5, 6), torch.ones(4, 5, dtype=torch.bool))


def test_a_pooling_an_encoder_and_a_scorer_without_a_gradient_are_refused(tmp_path: Path) -> None:
    """Each would leave its own weights, or those before it, as they are, and the others would learn."""
    for part, text, line in (
        ("pooling", POOLING + f"return {SUM}.detach()", "gradient"),
        ("encoder", TEXTS.replace("sum(dim=1)", "sum(dim=1).detach()"), "shape"),
        ("scorer", SCORER.replace("(2, 3))", "(2, 3)).detach()"), "gradient"),
    ):
        found = failing(tmp_path, text)[line]
        assert f"{part} 'mine' in {tmp_path / 'losses.py'} gives a value without a gradient" in found


@pytest.mark.parametrize("part", ["encoder", "scorer"])
def test_the_file_of_an_encoder_and_a_scorer_is_named_too(part: str, tmp_path: Path) -> None:
    text = swapped(TEXTS, "sum(dim=1)", "sum(dim=2)") if part == "encoder" else swapped(SCORER, "(2, 3))", "(1, 3))")
    assert f"{part} 'mine' in {tmp_path / 'losses.py'} gives" in failing(tmp_path, text)["shape"]


IMAGES = """@goalgrid.image_encoder("mine")
class Mine(torch.nn.Module):
    def __init__(self, shape, dim):
        super().__init__()
        self.dim = dim
        self.project = torch.nn.Linear(shape[0], dim)

    def forward(self, images):
        x = images.float().mean(dim=(2, 3)) / 255
        return self.project(x)"""
TEXTS = """@goalgrid.text_encoder("mine")
class Mine(torch.nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.embed = torch.nn.Embedding(words, dim, padding_idx=0)

    def forward(self, ids, lengths):
        return self.embed(ids).sum(dim=1)"""


@pytest.mark.parametrize(
    ("text", "edit", "check", "said"),
    [
        (IMAGES, ("", ""), "", ""),
        (IMAGES, ("project(x)", "project(torch.nn.functional.dropout(x, 0.5, self.training))"), "", ""),
        (IMAGES, ("project(x)", "project(x)[:, :5]"), "shape", "gives (4, 5) for a batch of 4; it should give (4, 12)"),
        (
            IMAGES,
            ("project(x)", "project(x - x.mean(0))"),
            "batch",
            "alone, the output of an input changes by",
        ),
        (
            IMAGES,
            ("project(x)", "project(x) + torch.rand(1)"),
            "batch",
            "at the second call, the output of an input changes",
        ),
        (IMAGES, ("project(x)", "project(x).detach() + 0 * self.project.bias"), "gradient", "project.weight gets no"),
        (IMAGES, ("self.dim = dim", "self.by = torch.rand(dim)"), "weights", "state outside state_dict"),
        (swapped(swapped(IMAGES, '"mine"', '"mine", on="features"'), ".mean(dim=(2, 3))", ""), ("", ""), "", ""),
        (TEXTS, ("", ""), "", ""),
        (TEXTS, ("sum(dim=1)", "sum(dim=1) / (lengths - 1)[:, None]"), "shape", "a value is not finite"),
        (TEXTS, ("sum(dim=1)", "mean(dim=1)"), "batch", "with more padding after a caption"),
        (TEXTS, ("(ids).sum(dim=1)", "(ids)[:, -1]"), "batch", "with more padding after a caption"),
    ],
)
def test_an_encoder_is_checked_too(text: str, edit: tuple[str, str], check: str, said: str, tmp_path: Path) -> None:
    body = swapped(text, *edit) if edit[0] else text
    if "self.by" in body:
        body = swapped(body, "project(x)", "project(x) + self.by")
    found = failing(tmp_path, body)
    assert said in found[check] if check else found == {}


@pytest.mark.parametrize(
    ("decorator", "said"),
    [
        ("pooling", "Mine.__init__ takes (); its first arguments must be dim"),
        ("text_encoder", "Mine.__init__ takes (); its first arguments must be words, dim"),
        ("scorer", "Mine.__init__ takes (); its first arguments must be dim"),
    ],
)
def test_a_module_without_a_constructor_is_told_what_it_takes(decorator: str, said: str, tmp_path: Path) -> None:
    body = "class Mine(torch.nn.Module):\n    def forward(self, ids, lengths):\n        return ids"
    with pytest.raises(UserError, match=re.escape(said)):
        define(tmp_path, f'@goalgrid.{decorator}("mine")\n{body}')


def test_an_encoder_of_a_size_that_is_fixed_is_told_what_it_was_given(tmp_path: Path) -> None:
    fixed = swapped(IMAGES, "torch.nn.Linear(shape[0], dim)", "torch.nn.Linear(3 * 16 * 16, dim)")
    found = failing(tmp_path, swapped(fixed, "images.float().mean(dim=(2, 3))", "images.float().flatten(1)"))
    assert found.keys() == {"shape", "gradient", "batch", "weights"}
    assert found["shape"].endswith("), given (4, 3, 64, 64)")


@pytest.mark.parametrize(("shape", "said"), [((48,), "one vector per image"), ((6, 48), "several vectors per image")])
def test_an_encoder_of_pictures_is_refused_on_features(shape: tuple[int, ...], said: str, tmp_path: Path) -> None:
    settings = define(tmp_path, IMAGES).validated(OwnImageSettings, {"encoder": "own", "name": "mine"})
    with pytest.raises(
        UserError, match=re.escape(f"on = 'pictures', but an image of these data has the shape {shape}: {said}.")
    ):
        image_encoder(settings, shape, 12, {})


SCORER = """@goalgrid.scorer("mine")
class Mine(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.project = torch.nn.Linear(dim, dim, bias=False)

    def forward(self, images, regions, words, lengths):
        counts = regions[:, None, None, None] * lengths[:, None, None]
        products = torch.einsum("ind,tmd->itnm", self.project(images), words)
        return (products / counts).sum(dim=(2, 3))"""


@pytest.mark.parametrize(
    ("edit", "check", "said"),
    [
        (("", ""), "", ""),
        (("products / counts", "torch.nn.functional.dropout(products / counts, 0.5, self.training)"), "", ""),
        (("dim=(2, 3))", "dim=2)"), "shape", "gives (4, 3, 4) for 4 images and 3 captions; it should give (4, 3)"),
        (
            ("project(images)", "project(images.detach())"),
            "gradient",
            "it differs from the derivative of the returned value",
        ),
        (
            ("products / counts", "products / counts * torch.rand(1)"),
            "batch",
            "at the second call, the output of an input changes",
        ),
        (
            ("products / counts", "products / counts - products.mean()"),
            "batch",
            "alone in a batch, the output of an input changes",
        ),
        (("products / counts", "(1.001 - products).log()"), "batch", "with more zero padding after an image's vectors"),
        (("self.project(images), words", "images, words"), "gradient", "score.project.weight gets no gradient"),
        (
            ("return (products", "return (1 - (images[:, :1] * words[:, 0]).sum(-1)).sqrt() + (products"),
            "half precision",
            "all in one point",
        ),
    ],
)
def test_a_scorer_is_checked_too(edit: tuple[str, str], check: str, said: str, tmp_path: Path) -> None:
    found = failing(tmp_path, swapped(SCORER, *edit) if edit[0] else SCORER)
    assert said in found[check] if check else found == {}


POOLING = '@goalgrid.pooling("mine")\ndef mine(values, present):\n    '
SUM = "(values * present[..., None]).sum(1)"


@pytest.mark.parametrize(
    ("body", "check", "said"),
    [
        (f"return {SUM}", "", ""),
        ("return values.mean(1)", "batch", "with another value at a padded position"),
        (f"return {SUM}.detach() * values[:, 0]", "gradient", "it differs from the derivative of the returned value"),
        (f"return {SUM} + values[:1, 0]", "batch", "in another order of the batch"),
        (f"return {SUM}.exp().pow(99)", "half precision", "not finite"),
        (f"return {SUM}.sum(1)", "gradient", "gives (4,) for values (4, 5, 6); it should give (4, 6)"),
    ],
    ids=["right", "padding", "gradient", "permutation", "overflow", "shape"],
)
def test_a_pooling_is_checked_too(body: str, check: str, said: str, tmp_path: Path) -> None:
    found = failing(tmp_path, POOLING + body)
    assert said in found[check] if check else found == {}
