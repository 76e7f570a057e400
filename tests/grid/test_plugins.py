"""A user's own files: what they add to the catalogue, whom that concerns, and every mistake in one message."""

import re
from pathlib import Path
from typing import Any

import pytest

from goalgrid.grid import plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.objectives import resolve
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid, save_grid

from ..conftest import checked

HEAD = "import goalgrid\nfrom goalgrid import Parameter\n\n\n"
LOSS = '@goalgrid.objective("mine", tau=Parameter(10.0, "steepness"))\ndef mine(t, *, tau):\n    """tau s_neg"""\n'
MINE = HEAD + LOSS + "    return tau * t.s_neg\n"
GRID = (
    'name = "g"\ndatasets = "shapes"\nrecipes = "cnn-bow"\nobjectives = ["con_con", "mine"]\nseeds = 0\n'
    'uses = "./losses.py"\n'
)


def own_grid(folder: Path, text: str = MINE, *overrides: str) -> Grid:
    (folder / "losses.py").write_text(text, encoding="utf-8")
    (folder / "g.toml").write_text(GRID, encoding="utf-8")
    return load(str(folder / "g.toml"), overrides)


def ids(grid: Grid) -> dict[str, str]:
    return {cell.objective: cell.trials[0].id for cell in expand(grid)}


def test_a_loss_of_ones_own_names_its_paper_and_its_formula(tmp_path: Path) -> None:
    declared = MINE.replace('"mine"', '"mine", source="A. Author, 2026", formula="T = 1", known_as="old"')
    entry = own_grid(tmp_path, declared).catalog.objectives["mine"]
    assert (entry.family, entry.source, entry.formula, entry.known_as) == ("own", "A. Author, 2026", "T = 1", "old")


def test_a_loss_of_ones_own_is_an_objective_with_parameters(tmp_path: Path) -> None:
    grid = own_grid(tmp_path, MINE, "sweep.objective.tau=[10, 5]")
    swept = {cell.trials[0].id for cell in expand(grid) if cell.objective == "mine"}
    assert len(swept) == 2
    known = grid.catalog.objectives
    assert resolve("mine", known, tau=3)["tau"] == 3.0
    assert known["mine"].formula == "tau s_neg"
    assert (known["mine"].family, known["mine"].source) == ("own", "losses")
    assert ids(own_grid(tmp_path))["mine"] in swept


def test_a_loss_of_ones_own_moves_no_other_trial_and_goes_with_its_grid(tmp_path: Path) -> None:
    content = {"name": "g", "datasets": "shapes", "recipes": "cnn-bow", "objectives": "con_con", "seeds": 0}
    ours = ids(checked(content))["con_con"]
    assert ids(own_grid(tmp_path))["con_con"] == ours
    assert "mine" not in checked(content).catalog.objectives


def test_an_own_pooling_is_named_by_recipes_and_settings_and_by_no_other_grid(tmp_path: Path) -> None:
    pooling = '\n\n@goalgrid.pooling("front")\ndef first(values, present):\n    return values[:, 0]\n'
    recipe = ('recipe={r={extends="cnn-bow", model.text.pooling="front"}}', "recipes=r")
    grid = own_grid(tmp_path, MINE + pooling, *recipe, 'sweep.model.image.pooling=["mean", "front"]')
    models = [cell.trials[0].shared.model for cell in expand(grid)]
    assert {(model.image.pooling, model.text.pooling) for model in models} == {("mean", "front"), ("front", "front")}
    with pytest.raises(UserError, match=r"unknown pooling 'front'.* Known: mean, max, first"):
        expand(own_grid(tmp_path, MINE, "model.image.pooling=front"))


POOLING = """

@goalgrid.pooling("power", p=Parameter(2.0, "exponent"))
def power(values, present, p):
    return values[:, 0] ** p
"""


def test_parameters_of_an_own_pooling_are_set_and_swept_and_count_for_its_trials_alone(tmp_path: Path) -> None:
    def pooled(*overrides: str) -> list[tuple[str, dict[str, Any]]]:
        cells = expand(own_grid(tmp_path, MINE + POOLING, *overrides))
        return [(c.trials[0].id, c.trials[0].shared.model.text.pool_parameters) for c in cells if c.objective == "mine"]

    own = "model.text.pooling=power"
    ((default, parameters),) = pooled(own)
    assert parameters == {"p": 2.0}
    assert pooled(own, "model.text.pool_parameters.p=2") == [(default, {"p": 2.0})]
    swept = pooled(own, "sweep.model.text.pool_parameters.p=[2, 3]")
    assert [parameters for _, parameters in swept] == [{"p": 2.0}, {"p": 3.0}]
    assert swept[0][0] == default != swept[1][0]
    both = pooled('sweep.model.text.pooling=["mean", "power"]', "sweep.model.text.pool_parameters.p=[2, 3]")
    assert [parameters for _, parameters in both] == [{}, {}, {"p": 2.0}, {"p": 3.0}]
    assert (both[0][0], both[2][0]) == (pooled()[0][0], default)
    for wrong, said in (
        ("p=steep", "p must be a number, not 'steep'"),
        (
            "q=1",
            "unknown setting 'model.text.pool_parameters.q' in [set]. Did you mean 'model.text.pool_parameters.p'?",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            pooled(own, f"model.text.pool_parameters.{wrong}")
    with pytest.raises(UserError, match="has no effect in this grid: it needs pooling = a pooling of your own"):
        pooled("model.text.pool_parameters.p=3")


NET = """

@goalgrid.image_encoder("net", width=Parameter(8, "channels"))
class Net(Module):
    def __init__(self, shape, dim, width):
        pass

    def forward(self, images):
        pass
"""
MODULE = "class Module:\n    def state_dict(self):\n        pass\n\n\n"
"""What of torch the declaration of an encoder looks at; this room imports no torch."""
NETS = HEAD + MODULE + LOSS + "    return tau * t.s_neg\n" + NET
OWN = "recipe={r={extends='cnn-bow', model.image={encoder='own', name='net', size=16%s}}}", "recipes=r"


def test_an_own_encoder_is_chosen_with_its_parameters_and_they_are_part_of_the_id(tmp_path: Path) -> None:
    recipe = (OWN[0] % "", OWN[1])
    grid = own_grid(tmp_path, NETS, *recipe, "objectives=mine", "sweep.model.image.parameters.width=[8, 16.0]")
    found = {cell.trials[0].id: cell.trials[0].shared.model.image for cell in expand(grid)}
    assert [image.parameters for image in found.values()] == [{"width": 8}, {"width": 16}]
    assert [image.view.size for image in found.values()] == [16, 16]
    assert own_grid(tmp_path, NETS, OWN[0] % ", parameters={width=16}", OWN[1])
    plain = {cell.trials[0].id for cell in expand(own_grid(tmp_path, NETS, *recipe, "objectives=mine"))}
    assert plain < set(found)
    chosen = own_grid(tmp_path, NETS, "model.image.encoder=own", "model.image.name=net", "model.image.size=16")
    assert expand(chosen)[0].trials[0].shared.model.image in found.values()


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (
            NETS,
            "parameters={widht=3}",
            "model.image.own.parameters: unknown parameter 'widht' of image encoder 'net'. Did you",
        ),
        (NETS, "parameters={width='a'}", "model.image.own.parameters: width must be a number, not 'a'"),
        (NETS, "nmae='net'", "unknown key 'nmae' in model.image.own. Did you mean 'name'?"),
        (NETS.replace('"net"', '"nett"'), "", "unknown image encoder of your own 'net'. Did you mean 'nett'?"),
        (NETS.replace("encoder(", "encoder(on='picture', name="), "", "unknown value 'picture' of on. Did you mean"),
        (NETS.replace("shape, dim, width", "shape, dim"), "", "width is declared, but Net takes no width"),
        (NETS.replace("shape, dim, width", "shape, dim, width, depth"), "", "Net takes depth, which is not declared"),
        (
            NETS.replace("shape, dim", "dim, shape"),
            "",
            "Net.__init__ takes (dim, shape, width); its first arguments must be shape, dim",
        ),
        (NETS.replace("self, images", "self"), "", "Net.forward takes (); it must take (images)"),
        (NETS.replace("Net(Module)", "Net"), "", "Net is not a subclass of torch.nn.Module"),
        (NETS.replace('"net"', '"mine"'), "", "the name 'mine' is taken, by"),
    ],
)
def test_a_mistake_with_an_own_encoder_is_one_message(text: str, more: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        expand(own_grid(tmp_path, text, OWN[0] % f", {more}".rstrip(", "), OWN[1]))
    assert said in str(caught.value)


SCORER = """

@goalgrid.scorer("late", sharpness=Parameter(9.0, "steepness"))
def late(images, regions, words, lengths, *, sharpness):
    pass
"""
LATE = "recipes=scan-t2i", "objectives=mine", "model.scorer.kind=own", "model.scorer.name=late"


def test_an_own_scorer_is_chosen_with_its_parameters_and_they_are_part_of_the_id(tmp_path: Path) -> None:
    grid = own_grid(tmp_path, MINE + SCORER, *LATE, "sweep.model.scorer.parameters.sharpness=[9, 4]")
    found = {cell.trials[0].id: cell.trials[0].shared.model.scorer.parameters for cell in expand(grid)}
    assert list(found.values()) == [{"sharpness": 9.0}, {"sharpness": 4.0}]
    assert expand(own_grid(tmp_path, MINE + SCORER, *LATE))[0].trials[0].id in found


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (
            SCORER,
            "model.scorer.parameters.sharp=3",
            "unknown setting 'model.scorer.parameters.sharp' in [set]. Did you",
        ),
        (
            SCORER,
            "model.scorer.name=latte",
            "unknown scorer of your own 'latte'. Did you mean 'late'? Known: late. Put",
        ),
        (
            SCORER.replace("words, ", ""),
            "",
            "late takes (images, regions, lengths, sharpness); its first arguments must be images, ",
        ),
        (SCORER.replace("*, sharpness", "*, sharp"), "", "sharpness is declared, but late takes no sharpness"),
        (
            SCORER.replace("def late(images, regions, words, lengths, *, sharpness)", "class Late"),
            "",
            "Late is not a subclass of torch.nn",
        ),
        (SCORER, "model.text.pooling=mean", "scorer own reads sets of vectors: set model.text.pooling = none"),
    ],
)
def test_a_mistake_with_an_own_scorer_is_one_message(text: str, more: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        expand(own_grid(tmp_path, MINE + text, *LATE, *([more] if more else [])))
    assert said in str(caught.value)


def test_a_scorer_of_sets_refuses_an_own_encoder_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"scorer scan reads sets of vectors, but your own image encoder 'net'"):
        expand(own_grid(tmp_path, NETS, "recipes=scan-t2i", "model.image.encoder=own", "model.image.name=net"))


def test_a_saved_grid_needs_its_file_no_more_and_sees_edits(tmp_path: Path) -> None:
    grid, home = own_grid(tmp_path), Home(tmp_path / "runs")
    before = ids(grid)
    save_grid(grid, [cell.trials[0] for cell in expand(grid)], home)
    (tmp_path / "losses.py").write_text(MINE.replace("tau * t", "2 * tau * t"), encoding="utf-8")
    assert "2 * tau" in read_grid("g", home).uses[0].source
    (tmp_path / "losses.py").write_text("x = 1 / 0\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"does not import, line 1: x = 1 / 0: ZeroDivisionError: division by zero$"):
        read_grid("g", home)
    (tmp_path / "losses.py").unlink()
    read = read_grid("g", home)
    assert read == grid
    assert read.uses[0].gone()
    assert ids(read) == before


def test_a_file_may_lie_beside_the_packages_of_this_program(tmp_path: Path) -> None:
    (tmp_path / "goalgrid").mkdir()
    (tmp_path / "goalgrid" / "__init__.py").touch()
    assert expand(own_grid(tmp_path))


def test_a_class_takes_its_parameters_in_its_constructor(tmp_path: Path) -> None:
    own = '@goalgrid.objective("mine", tau=Parameter(10.0, "steepness"))\nclass Mine:\n'
    body = "    def __init__(self, tau):\n        self.tau = tau\n"
    call = "    def __call__(self, t):\n        return self.tau * t.s_neg\n"
    assert expand(own_grid(tmp_path, HEAD + own + body + call))
    with pytest.raises(UserError, match=r"class Mine has no __call__\(self, triplets\)"):
        own_grid(tmp_path, HEAD + own + body)


WRONG = {
    "a missing module": ("import torhc\n", "losses.py does not import, line 1: import torhc: ModuleNotFoundError"),
    "a wrong line": (f"{MINE}\n\nx = 1 / 0\n", "losses.py does not import, line 11: x = 1 / 0: ZeroDivisionError"),
    "no Python": ("def mine(t:\n", "losses.py does not import, line 1: '(' was never closed"),
    "nothing offered": ("x = 1\n", "losses.py registers nothing. Decorate a loss with @goalgrid.objective(NAME)"),
    "no name": (MINE.replace('("mine", tau=Parameter(10.0, "steepness"))', ""), 'write @goalgrid.objective("mine")'),
    "no name of a pooling": (HEAD + "@goalgrid.pooling\ndef top(v, p):\n    pass\n", '@goalgrid.pooling("top")'),
    "no name of a scorer": (HEAD + "@goalgrid.scorer\ndef near(a, b):\n    pass\n", '@goalgrid.scorer("near")'),
    "a name of ours": (MINE.replace('"mine"', '"con_con"'), "the name 'con_con' is taken, by this program"),
    "a name twice": (
        f'{MINE}\n\n@goalgrid.objective("mine")\ndef other(t):\n    return t.s_neg\n',
        "the name 'mine' is taken, by",
    ),
    "a name that is none": (MINE.replace('"mine"', '"my loss"'), "'my loss': a name begins with a letter or digit"),
    "declared, not taken": (MINE.replace("*, tau", ""), "losses.py, line 5: @goalgrid.objective"),
    "taken, not declared": (
        MINE.replace("*, tau", "*, tau, beta=1"),
        "objective 'mine': mine takes beta, which is not declared; add beta = goalgrid.Parameter(default, meaning)",
    ),
    "scores of pairs as arguments": (
        HEAD + '@goalgrid.objective("mine")\ndef mine(s_pos, s_neg, margin=0.2):\n    return s_neg\n',
        "mine takes (s_pos, s_neg, margin); a loss takes one argument, t, which has t.s_pos and t.s_neg; or with on=",
    ),
    "images and texts": (
        HEAD + '@goalgrid.objective("mine")\ndef mine(image, text):\n    return text\n',
        "mine takes (image, text); a loss takes one argument, t",
    ),
    "a positional parameter": (MINE.replace("*, tau", "tau, beta"), "mine takes beta, which is not declared; add beta"),
    "a parameter of ours": (
        MINE.replace("tau", "mining"),
        "mining is a parameter that every objective has",
    ),
    "no Parameter": (MINE.replace('Parameter(10.0, "steepness")', "10.0"), "tau = 10.0 is not a goalgrid.Parameter"),
    "a text without choices": (MINE.replace("10.0", '"steep"'), "a text parameter needs choices"),
    "a choice of numbers": (
        MINE.replace('"steepness"', '"steepness", choices=(1.0, 10.0)'),
        "Parameter(10.0, ...): choices must be texts; a number takes no choices",
    ),
    "an infinite default": (
        MINE.replace("10.0", 'float("inf")'),
        "Parameter(inf, ...): the default must be finite",
    ),
    "a pooling of other arguments": (
        HEAD + '@goalgrid.pooling("mine")\ndef mine(x, mask):\n    return x\n',
        "pooling 'mine': mine takes (x, mask); its first arguments must be values, present",
    ),
    "a pooling of ours": (
        HEAD + '@goalgrid.pooling("max")\ndef mine(values, present):\n    return values\n',
        "the name 'max' is taken, by this program",
    ),
    "a wrong on": (
        MINE.replace('"mine",', '"mine", on="score",'),
        "unknown value 'score' of on. Did you mean 'scores'?",
    ),
    "a module next to it": (
        f"import helper\n{MINE}",
        "line 1: 'helper' is next to the file and would not be sent to the",
    ),
    "a relative import": (
        f"from . import helper\n{MINE}",
        "line 1: a relative import cannot be followed; import the names themselves from an installed module",
    ),
    "a relative import in a function": (
        f"{MINE}\n\ndef late():\n    from .helper import x\n",
        "line 12: a relative import cannot be followed",
    ),
    "a star": (f"from math import *\n{MINE}", "line 1: from math import * cannot be followed"),
    "a loss in a function": (
        HEAD + "def make():\n    @goalgrid.objective('mine')\n    def mine(t):\n        return t.s_neg\n\n\nmake()\n",
        "define make.<locals>.mine at the top of the file, not inside a function or class",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_a_file_is_one_message(mistake: str, tmp_path: Path) -> None:
    text, said = WRONG[mistake]
    (tmp_path / "helper.py").touch()
    with pytest.raises(UserError) as caught:
        own_grid(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "losses.py") in str(caught.value)


def test_a_file_with_the_same_ending_is_not_near_for_that(tmp_path: Path) -> None:
    (tmp_path / "kill.py").touch()
    for name in ("nope.py", "x.py", "missing.py"):
        with pytest.raises(UserError, match=rf"no file {tmp_path / name}\. A path begins at the grid"):
            plugins.read(name, tmp_path)


def test_a_file_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    own_grid(tmp_path)
    (tmp_path / "losses.py").rename(tmp_path / "loses.py")
    with pytest.raises(UserError, match=r"uses './losses.py': no file .* Did you mean 'loses.py' in the same folder\?"):
        load(str(tmp_path / "g.toml"))


def test_names_of_a_file_that_cannot_be_read_are_no_problems_of_their_own(tmp_path: Path) -> None:
    recipe = '[recipe.theirs]\nextends = "cnn-bow"\nmodel.text.pooling = "of-the-file"\n'
    (tmp_path / "g.toml").write_text(GRID.replace('"cnn-bow"', '"theirs"') + recipe, encoding="utf-8")
    with pytest.raises(UserError, match=r"uses './losses.py': no file") as caught:
        load(str(tmp_path / "g.toml"))
    assert "of-the-file" not in str(caught.value)


def test_an_installed_package_is_used_by_the_name_of_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_grid(tmp_path)
    (tmp_path / "g.toml").write_text(GRID.replace("./losses.py", "my-lab"), encoding="utf-8")
    with pytest.raises(UserError, match=r"unknown package 'my-lab' in uses"):
        load(str(tmp_path / "g.toml"))
    package, installed = tmp_path / "site" / "lab_of_mine", tmp_path / "site" / "lab_of_mine-1.dist-info"
    package.mkdir(parents=True)
    installed.mkdir()
    (package / "__init__.py").write_text("from . import losses as losses\n", encoding="utf-8")
    (package / "losses.py").write_text(MINE, encoding="utf-8")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-of-mine\nVersion: 1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text("[goalgrid.plugins]\nmy-lab = lab_of_mine\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    grid = load(str(tmp_path / "g.toml"))
    entry = grid.catalog.objectives["mine"]
    assert entry.equation is not None
    assert plugins.origin(entry.equation) == grid.uses[0]
    assert entry.source == "lab_of_mine.losses"
    assert load(str(tmp_path / "g.toml")) == grid
    elsewhere = grid.uses[0].model_copy(update={"source": "0"})
    with pytest.raises(UserError, match="the package 'my-lab' is installed here in another version"):
        Catalog.of([elsewhere])


def test_two_files_may_have_one_name_and_cannot_define_one(tmp_path: Path) -> None:
    own_grid(tmp_path)
    (tmp_path / "below").mkdir()
    for other in ("below/losses.py", "other.py"):
        (tmp_path / other).write_text(MINE, encoding="utf-8")
        (tmp_path / "g.toml").write_text(GRID.replace('"./losses.py"', f'["losses.py", "{other}"]'), encoding="utf-8")
        with pytest.raises(UserError, match=r"the name 'mine' is taken, by .*losses\.py"):
            load(str(tmp_path / "g.toml"))
    (tmp_path / "below" / "losses.py").write_text(MINE.replace('"mine"', '"theirs"'), encoding="utf-8")
    (tmp_path / "g.toml").write_text(
        GRID.replace('"./losses.py"', '["losses.py", "below/losses.py"]'), encoding="utf-8"
    )
    known = load(str(tmp_path / "g.toml")).catalog.objectives
    files = {plugins.origin(loss).path for name in ("mine", "theirs") if (loss := known[name].equation)}
    assert files == {str(tmp_path / "losses.py"), str(tmp_path / "below" / "losses.py")}
