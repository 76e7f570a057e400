"""The code of a trial: what it holds of the real sources, told by editing copies of them and by watching a training."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import digest
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records import known_fingerprints, provenance
from goalgrid.results.records.sources import Sources, texts_of
from goalgrid.runners.training import fingerprint as fingerprints
from goalgrid.runners.training.fingerprint import begun_by, code_fingerprint, names, sources
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Trainer
from tests.program import FILES, copied, module_of

from ...conftest import ROOT, SMALL

NEW_LOSS = [
    (
        "objectives/hinge.py",
        '    "shn": semi_hard,\n',
        '    "shn": semi_hard,\n    "mine": lambda t: t.s_neg - t.s_pos,\n',
    ),
    (
        "grid/objectives/loss_entries.py",
        '    "infonce": ObjectiveEntry(',
        '    "mine": ObjectiveEntry("hinge", "here", "s_neg - s_pos", {}, Mining("all", fixed=True)),\n'
        '    "infonce": ObjectiveEntry(',
    ),
]
"""A file, what stands there, and what replaces it."""
SAME = {
    "a comment beside the objectives": ("objectives/diagrams.py", "MEAN = 0.1\n", "MEAN = 0.1  # as printed\n"),
    "a comment in the trainer": (
        "runners/training/trainer.py",
        "        self._resume()\n",
        "        self._resume()  # or begin\n",
    ),
    "a docstring of the learner": (
        "runners/training/learner.py",
        '"""Restore what `state` returned."""',
        '"""Step."""',
    ),
    "what an error says": ("runners/training/exchange/batch_sizes.py", "Use at most", "Take at most"),
    "a diagram's colour": ("objectives/diagrams.py", 'cmap="cividis"', 'cmap="viridis"'),
    "the colours of all pictures": ("grid/palette.py", '"#0072B2"', '"#0072B3"'),
    "a setting's description": (
        "grid/settings/__init__.py",
        "in a batch; a batch of one",
        "in a batch. A batch of one",
    ),
    "another triplet weight": ("objectives/triplet_weights.py", "torch.sigmoid(tau * (t.s_neg - t.s_pos))", "t.s_neg"),
    "another pair weight": ("objectives/pair_weights.py", "return 1 - t.s_pos, t.s_neg", "return 2 - t.s_pos, t.s_neg"),
    "another loss": ("objectives/hinge.py", ".abs() <= epsilon", ".abs() < epsilon"),
    "the parameters of another loss": (
        "grid/objectives/loss_entries.py",
        '"inverse temperature", 50.0',
        '"inverse temperature", 60.0',
    ),
    "another image encoder": ("retrieval/encoders/image.py", "UNDROPPED = 0.2", "UNDROPPED = 0.3"),
    "another text encoder": ("retrieval/encoders/text.py", "(forward + backward) / 2", "forward + backward"),
    "another pooling": ("retrieval/encoders/pooling.py", "TEMPERATURE = 0.1", "TEMPERATURE = 0.2"),
    "another pooling's network": ("retrieval/encoders/reasoning.py", "BLOCKS = 4", "BLOCKS = 3"),
    "features of pretrained networks": ("retrieval/features.py", "BLOCK = 256", "BLOCK = 128"),
    "another data set's protocol": ("grid/protocols.py", "5000, 1000,", "5000, 500,"),
    "the digits of tables": ("results/records/rounding.py", "SHOWN_DIGITS = 1", "SHOWN_DIGITS = 2"),
    "when a model has collapsed": ("goalgrid/showing/status.py", '<= row["val_chance"]', '< row["val_chance"]'),
}
OTHER = {
    "derived_seed": ("grid/identity.py", ", 16) >> 1", ", 16) >> 2"),
    "seed_torch": (
        "runners/training/checkpoints.py",
        "default_generator.manual_seed(seed)",
        "default_generator.manual_seed(seed + 1)",
    ),
    "the schedule": ("runners/training/optimizers/schedules.py", "epoch // train", "(epoch + 1) // train"),
    "the loop": ("runners/training/learner.py", "loss.backward()", "(2 * loss).backward()"),
    "the optimiser": ("runners/training/optimizers/groups.py", "fused=True", "fused=False"),
    "the order of batches": (
        "runners/training/inputs.py",
        "torch.randperm(len(learnt)",
        "torch.randperm(1 + len(learnt)",
    ),
    "a replica's random numbers": ("runners/training/replica_process.py", "dropout of replica", "Dropout of replica"),
    "the image encoder in use": ("retrieval/encoders/image.py", "/ 127.5 - 1", "/ 127.5"),
    "the text encoder in use": ("retrieval/encoders/text.py", "-0.1, 0.1)", "-0.2, 0.2)"),
    "the pooling in use": (
        "retrieval/encoders/pooling.py",
        "clamp(min=1)\n\n\ndef maximum",
        "clamp(min=2)\n\n\ndef maximum",
    ),
    "the triplet weight in use": (
        "objectives/triplet_weights.py",
        "(margin + t.s_neg > t.s_pos)",
        "(margin + t.s_neg >= t.s_pos)",
    ),
    "the pair weight in use": (
        "objectives/pair_weights.py",
        "torch.ones_like(t.s_pos), torch",
        "torch.zeros_like(t.s_pos), torch",
    ),
    "the surrogate": ("objectives/gradient_surrogate.py", "triplet.s_neg - (w_tri", "triplet.s_neg + (w_tri"),
    "a default in use": ("grid/objectives/goal_matrix.py", 'none: always", 0.2, None', 'none: always", 0.3, None'),
    "evaluation": ("retrieval/evaluation.py", "RECALLS = (1, 5, 10)", "RECALLS = (1, 5, 20)"),
    "the data set": ("retrieval/data/shapes.py", "20221204", "20221205"),
    "the protocol in use": ("grid/protocols.py", '500, description="500 r', '400, description="500 r'),
}


def settings_of(*overrides: str) -> TrialSettings:
    small = [word for word in SMALL if word != "--set"]
    return trials_of(expand(load("demo", [*small, "train.epochs=1", *overrides])))[0].settings


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources; a test leaves them as they are."""
    folder = tmp_path_factory.mktemp("copy")
    return copied(folder)


@contextmanager
def edited(folder: Path, *edits: tuple[str, str, str]) -> Iterator[None]:
    before = {name: (folder / name).read_text(encoding="utf-8") for name, _, _ in edits}
    for name, old, new in edits:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text, f"{name} has no {old!r}"
        (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    try:
        yield
    finally:
        for name, text in before.items():
            (folder / name).write_text(text, encoding="utf-8")


def fingerprint(folder: Path, settings: TrialSettings, *further: str) -> str:
    found = Sources(texts_of({f"goalgrid.{room}": folder / room for room in provenance.ROOMS}), names() | set(further))
    return found.fingerprint(*begun_by(settings))


@pytest.fixture(scope="module")
def before(copy: Path) -> str:
    return fingerprint(copy, settings_of())


def test_a_trial_stays_fresh_after_changes_that_do_not_concern_it(copy: Path, before: str) -> None:
    with edited(copy, *SAME.values()):
        together = fingerprint(copy, settings_of())
    if together == before:
        return
    for case, edit in SAME.items():
        with edited(copy, edit):
            assert fingerprint(copy, settings_of()) == before, case


def test_a_new_loss_makes_nothing_stale(copy: Path, before: str) -> None:
    with edited(copy, *NEW_LOSS):
        assert fingerprint(copy, settings_of(), "mine") == before


@pytest.mark.parametrize("case", OTHER)
def test_a_trial_is_stale_after_a_change_of(case: str, copy: Path, before: str) -> None:
    with edited(copy, OTHER[case]):
        assert fingerprint(copy, settings_of()) != before


@pytest.mark.parametrize(
    ("overrides", "name", "old", "new"),
    [
        (['objectives=["con_nca"]'], "objectives/triplet_weights.py", "tau * (t.s_neg - t.s_pos)", "t.s_neg - t.s_pos"),
        (['objectives=["sig-ms_con"]'], "objectives/relative.py", "1 - (threshold", "2 - (threshold"),
        (['objectives=["unified-weighted"]'], "objectives/pair_weights.py", "return 1 - t.s_pos", "return 2 - t.s_pos"),
        (
            ['objectives=["nt-xent-hn"]'],
            "objectives/contrastive.py",
            "import pad, softplus",
            "import pad, relu as softplus",
        ),
        (['objectives=["selhn"]'], "objectives/hinge.py", ".abs() <= epsilon", ".abs() < epsilon"),
        (["model.text.encoder=bigru"], "retrieval/encoders/text.py", "(forward + backward) / 2", "forward + backward"),
        (["model.image.pooling=gpo"], "retrieval/encoders/pooling.py", "TEMPERATURE = 0.1", "TEMPERATURE = 0.2"),
        (["model.image.pooling=gcn"], "retrieval/encoders/reasoning.py", "BLOCKS = 4", "BLOCKS = 3"),
        (['recipes=["vse-inf-wsl-tiny"]'], "retrieval/encoders/image.py", "UNDROPPED = 0.2", "UNDROPPED = 0.3"),
        (['recipes=["vsepp-r152-tiny"]'], "retrieval/features.py", "BLOCK = 256", "BLOCK = 128"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_other_settings_name_counts_for_them(
    overrides: list[str], name: str, old: str, new: str, copy: Path
) -> None:
    settings = settings_of(*overrides)
    whole = fingerprint(copy, settings)
    with edited(copy, (name, old, new)):
        assert fingerprint(copy, settings) != whole


def test_seeds_share_their_code_and_objectives_do_not() -> None:
    first, second = (settings_of(f"seeds=[{seed}]") for seed in (0, 1))
    assert code_fingerprint(first) == code_fingerprint(second)
    assert code_fingerprint(first) != code_fingerprint(settings_of('objectives=["lin_con"]'))


def test_what_another_process_found_is_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of()
    first = code_fingerprint(settings)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = list[str]()
    for change in (str, str.upper):
        fingerprints._fingerprint.cache_clear()
        told.append(code_fingerprint(settings))
        (file,) = known_fingerprints.folder().iterdir()
        found = {key: change(value) for key, value in json.loads(file.read_text())["found"].items()}
        file.write_text(json.dumps({"found": found, "sha256": digest(found)}))
    assert told == [first, first]
    fingerprints._fingerprint.cache_clear()
    assert code_fingerprint(settings) == provenance.versioned(first.removeprefix(provenance.CODE_VERSION).upper())
    fingerprints._fingerprint.cache_clear()


def test_telling_it_imports_none_of_what_it_reads() -> None:
    script = (
        "import sys; from goalgrid.runners.training import fingerprint; from goalgrid.grid.expansion import expand\n"
        "from goalgrid.grid.gridfile import load\n"
        "print(fingerprint.code_fingerprint(expand(load('demo'))[0].trials[0].shared))\n"
        "names = {'torch', 'numpy', 'ray', 'goalgrid.objectives', 'goalgrid.retrieval'}\n"
        "assert not {*names, 'goalgrid.runners.training.trainer'} & set(sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert finished.stdout.startswith(provenance.CODE_VERSION), finished.stderr


class Watched:
    """The definitions of this project whose code runs while the block does, in whichever thread."""

    def __init__(self) -> None:
        self.files = {str(path): module_of(path) for path in FILES}
        self.names: set[str] = set()

    def __enter__(self) -> "Watched":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        module = self.files.get(os.path.realpath(frame.f_code.co_filename))
        if event == "call" and module:
            self.names.add(f"{module}.{frame.f_code.co_qualname.partition('.')[0]}")


@pytest.mark.parametrize(
    "overrides",
    [
        ['objectives=["lin_nca"]'],
        pytest.param(
            [
                'objectives=["sig-ms_cir"]',
                "model.text.encoder=bigru",
                "model.text.pooling=gpo",
                "model.text.word_drop=0.2",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ['objectives=["selhn"]', 'recipes=["vse-inf-wsl-tiny"]', "model.image.size=32", "model.dim=16"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ['objectives=["unified"]', 'recipes=["vsepp-r152-tiny"]', "model.image.size=32", "model.dim=16"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda overrides: overrides[0],
)
def test_whatever_runs_when_a_trial_is_trained_is_part_of_its_code(overrides: list[str], tmp_path: Path) -> None:
    settings = settings_of("train.epochs=1", *overrides)
    with Watched() as watched:
        inputs = prepare(settings, Machine(features=tmp_path / "features"))
        trainer = Trainer(settings, inputs, TrialFolder(tmp_path))
        trainer.fit()
        trainer.by_protocols([settings.dataset.protocol])
    reached = {definition.name for definition in sources().reached(*begun_by(settings))}
    nameless = {name for name in watched.names if name.endswith(">")}  # lambdas in tables; what importing runs
    paths = {"goalgrid.grid.store.home.TrialFolder", "goalgrid.grid.store.home.Below"}  # of files and modules
    assert len(watched.names) > 60
    assert watched.names - nameless - reached - paths == set()


@pytest.mark.slow
def test_the_fingerprint_is_of_the_code_that_was_imported_whatever_is_written_later(copy: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from goalgrid.runners.launch import worker\n"
        "from goalgrid.runners.training.fingerprint import code_fingerprint\n"
        "from goalgrid.results.records import provenance\n"
        "from goalgrid.grid.expansion import expand\nfrom goalgrid.grid.gridfile import load\n"
        "if {late}:\n"
        "    path = Path('runners/training/optimizers/groups.py')\n"
        "    assert 'fused=True' in path.read_text()\n"
        "    path.write_text(path.read_text().replace('fused=True', 'fused=False'))\n"
        "print(code_fingerprint(expand(load('demo'))[0].trials[0].shared), worker.PROGRAM)\n"
    )
    with edited(copy, ("runners/training/optimizers/groups.py", "", "")):  # which is as before afterwards
        told = [
            subprocess.run(
                [sys.executable, "-c", script.format(late=late)],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for late in (False, True, False)
        ]
    assert told[0] == told[1] != told[2]
