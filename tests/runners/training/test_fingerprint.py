"""The code of a trial: what it holds of the real sources, told by editing copies of them and by watching a training."""

import ast
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import digest
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records import provenance
from goalgrid.results.records.sources import Sources, texts_of
from goalgrid.runners.training import fingerprint as fingerprints
from goalgrid.runners.training.fingerprint import code_fingerprint, names, roots_and_names, sources
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Trainer
from tests.cases import every
from tests.program import FILES, ROOMS, copied, module_of

from ...conftest import ROOT, SMALL

NEW = """
@objective("mine", on="all", formula="s_neg - s_pos", source="here")
def mine(t: Triplets) -> Tensor:
    return t.s_neg - t.s_pos
"""
UNUSED = (
    "diagrams.MEAN", "palette.DASHES", "triplet_weights.nca", "pair_weights.linear", "hinge.selectively_hard",
    "hinge.EASY", "contrastive.infonce", "contrastive.GAMMA", "image.UNDROPPED", "text.BiGru", "pooling.Gpo",
    "Gcn.BLOCKS", "retrieval.features.BLOCK", "PROTOCOLS['coco-5x1k']", "rounding.SHOWN_DIGITS", "status.collapsed",
)  # fmt: skip
"""Definitions that the training of a demo's first trial does not reach."""
USED = (
    "identity.derived_seed", "checkpoints.seed_all", "optimizers.learning_rate", "Learner.gradient",
    "optimizers.optimizer", "inputs.batches", "replica_process.follow", "image.Cnn", "text.Bow", "pooling.mean",
    "triplet_weights.constant", "pair_weights.constant", "GradientSurrogate.__call__", "evaluation.RECALLS",
    "shapes.load", "PROTOCOLS['shapes-500']",
)  # fmt: skip
"""Definitions that it reaches."""
OTHERS = {
    'objectives=["con_nca"]': "triplet_weights.nca",
    'objectives=["sig-ms_con"]': "Relative.members",
    'objectives=["unified-weighted"]': "pair_weights.linear",
    'objectives=["nt-xent-hn"]': "contrastive.nt_xent",
    'objectives=["selhn"]': "hinge.selectively_hard",
    "model.text.encoder=bigru": "text.BiGru",
    "model.image.pooling=gpo": "pooling.Gpo",
    "model.image.pooling=gcn": "Gcn.BLOCKS",
    'recipes=["vse-inf-wsl-tiny"]': "image.UNDROPPED",
    'recipes=["vsepp-r152-tiny"]': "retrieval.features.BLOCK",
}
"""Settings with a definition that these reach."""


def settings_of(*overrides: str) -> TrialSettings:
    small = [word for word in SMALL if word != "--set"]
    return trials_of(expand(load("demo", [*small, "train.epochs=1", *overrides])))[0].settings


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources; a test leaves them as they are."""
    folder = tmp_path_factory.mktemp("copy")
    return copied(folder)


def changes(body: list[ast.stmt], place: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Definitions by dotted name, methods and entries of dicts too; each with what changes it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield f"{place}.{node.name}", partial(node.body.append, ast.Expr(ast.Constant(...)))
            yield from changes(node.body if isinstance(node, ast.ClassDef) else [], f"{place}.{node.name}")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            name = f"{place}.{ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)}"
            yield name, partial(setattr, node, "value", ast.List([node.value]))
            if isinstance(node.value, ast.Dict):
                for at, (key, value) in enumerate(zip(node.value.keys, node.value.values, strict=True)):
                    yield (
                        f"{name}[{key and ast.unparse(key)}]",
                        partial(node.value.values.__setitem__, at, ast.List([value])),
                    )


@contextmanager
def changed(folder: Path, *names: str, more: str = "") -> Iterator[None]:
    """The program with other definitions of these names, wherever in it they stand.

    Args:
        names: ends of dotted names, each of one definition.
        more: what is added to the file of the last of them.
    """
    before = {file: file.read_text(encoding="utf-8") for room in ROOMS for file in (folder / room).rglob("*.py")}
    touched = set[Path]()
    try:
        for name in names:
            bare = name.partition("[")[0].rpartition(".")[2]
            trees = {file: ast.parse(file.read_text("utf-8")) for file, text in before.items() if bare in text}
            found = [(file, *it) for file, tree in trees.items() for it in changes(tree.body, module_of(file, folder))]
            ((file, _, change),) = (entry for entry in found if entry[1].endswith(f".{name}"))
            change()
            touched.add(file)
            file.write_text(ast.unparse(trees[file]) + more * (name == names[-1]), encoding="utf-8")
        yield
    finally:
        for file in touched:
            file.write_text(before[file], encoding="utf-8")


def fingerprint(folder: Path, settings: TrialSettings, *further: str) -> str:
    found = Sources(texts_of({f"goalgrid.{room}": folder / room for room in provenance.ROOMS}), names() | set(further))
    return found.fingerprint(*roots_and_names(settings))


@pytest.fixture(scope="module")
def before(copy: Path) -> str:
    return fingerprint(copy, settings_of())


def test_a_trial_stays_fresh_after_changes_that_do_not_concern_it(copy: Path, before: str) -> None:
    with changed(copy, *UNUSED):
        together = fingerprint(copy, settings_of())
    if together == before:
        return
    for name in UNUSED:
        with changed(copy, name):
            assert fingerprint(copy, settings_of()) == before, name


def test_words_are_no_part_of_it(copy: Path, before: str) -> None:
    """Comments, line breaks, docstrings and annotations are gone; what errors say is a case of the small project."""
    bare = [path for room in ROOMS for path in (copy / room).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in bare}
    for path, text in texts.items():
        path.write_text(ast.unparse(ast.parse(text)), encoding="utf-8")
    try:
        assert fingerprint(copy, settings_of()) == before
    finally:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["hinge.semi_hard", "pair_weights.linear", "triplet_weights.nca"])
def test_a_new_loss_or_weight_makes_nothing_stale(name: str, copy: Path, before: str) -> None:
    with changed(copy, name, more=NEW):
        assert fingerprint(copy, settings_of(), "mine") == before


def reaches(settings: TrialSettings, name: str) -> bool:
    """Whether the code of a trial holds a definition, or the class that has a method, by the end of its dotted name."""
    found = {definition.name for definition in sources().reached(*roots_and_names(settings))}
    owner = name.partition(".")[0]
    return any(place.endswith((f".{name}", f".{owner}") if owner[0].isupper() else f".{name}") for place in found)


@pytest.mark.parametrize("name", ["Learner.gradient", "triplet_weights.constant", "PROTOCOLS['shapes-500']"])
def test_a_trial_is_stale_after_a_change_of(name: str, copy: Path, before: str) -> None:
    """A method, a function that a table names, and an entry of a table."""
    with changed(copy, name):
        assert fingerprint(copy, settings_of()) != before


@every("name", USED)
def test_a_trial_reaches(name: str) -> None:
    """That a change of what is reached makes another fingerprint, `test_sources.py` shows for every kind."""
    assert reaches(settings_of(), name)


def test_a_trial_is_stale_after_a_change_of_what_its_loss_declares(copy: Path) -> None:
    settings = settings_of('objectives=["selhn"]')
    whole, file = fingerprint(copy, settings), copy / "objectives" / "hinge.py"
    text = file.read_text(encoding="utf-8")
    for declared, stale in (("epsilon=Parameter(0.01", True), ("tau=Parameter(10.0", False)):
        assert text.count(declared) == 1
        file.write_text(text.replace(declared, declared + "1"), encoding="utf-8")
        assert (fingerprint(copy, settings) != whole) == stale
    file.write_text(text, encoding="utf-8")


@every("setting", OTHERS)
def test_what_other_settings_name_counts_for_them(setting: str) -> None:
    assert reaches(settings_of(setting), OTHERS[setting])
    assert not reaches(settings_of(), OTHERS[setting])


def test_a_trial_is_stale_after_a_change_of_what_its_setting_names(copy: Path) -> None:
    settings = settings_of("model.image.pooling=gpo")
    whole = fingerprint(copy, settings)
    with changed(copy, "pooling.Gpo"):
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
        (file,) = provenance.fingerprints_folder().iterdir()
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
        files = {str(path): module_of(path) for path in FILES}
        self.module = cache(lambda name: files.get(os.path.realpath(name)))
        self.names: set[str] = set()

    def __enter__(self) -> "Watched":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        module, function = self.module(frame.f_code.co_filename), frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if event == "call" and module and function:  # bodies of modules and classes run as they are imported
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
    reached = {definition.name for definition in sources().reached(*roots_and_names(settings))}
    nameless = {name for name in watched.names if name.endswith(">")}  # lambdas in tables
    paths = {"goalgrid.grid.store.home.TrialFolder", "goalgrid.grid.store.home.Below"}  # of files and modules
    assert len(watched.names) > 60
    assert watched.names - nameless - reached - paths == set()


def test_a_file_of_the_user_counts_by_its_text_wherever_it_is(tmp_path: Path) -> None:
    loss = "import goalgrid\n\n\n@goalgrid.objective('mine')\ndef mine(t):\n    return t.s_neg{}\n"
    found = list[str]()
    for name, more in (("here", ""), ("there", ""), ("other", " - t.s_pos")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "losses.py").write_text(loss.format(more), encoding="utf-8")
        uses = f'uses=["{tmp_path / name / "losses.py"}"]'
        found.append(code_fingerprint(settings_of(uses, 'objectives=["mine"]')))
    assert found[0] == found[1] != found[2]


@pytest.mark.gate
def test_the_fingerprint_is_of_the_code_that_was_imported_whatever_is_written_later(copy: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from goalgrid.runners.launch import worker\n"
        "from goalgrid.runners.training.fingerprint import code_fingerprint\n"
        "from goalgrid.results.records import provenance\n"
        "from goalgrid.grid.expansion import expand\nfrom goalgrid.grid.gridfile import load\n"
        "if {late}:\n"
        f"    sys.path.append({str(ROOT)!r})\n"
        "    from tests.program import put_into_result\n"
        "    put_into_result('learning_rate', '2', Path('runners/training/optimizers.py'))\n"
        "print(code_fingerprint(expand(load('demo'))[0].trials[0].shared), worker.PROGRAM)\n"
    )
    with changed(copy, "optimizers.optimizer"):  # which is as before afterwards
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
