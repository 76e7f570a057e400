"""What `goalgrid compare` says of two grids."""

from goalgrid.results.analysis import grid_comparison
from goalgrid.results.analysis.grid_comparison import Side, SideCell, compare
from goalgrid.results.records.scores import Score

SPREAD = (-0.2, 0.1, 0.0, -0.1, 0.2)


def side(name: str, **means: float) -> Side:
    """A grid with a cell for each objective, whose trials of five seeds lie around this mean."""

    def cell(objective: str, mean: float) -> SideCell:
        wide = 1.1 if name == "b" and objective != "same" else 1.0
        values = tuple(mean + wide * part for part in SPREAD)
        score = Score(values, 5, trials=tuple(f"{name}{objective}{seed}" for seed in range(5)), seeds=tuple(range(5)))
        axes = {"dataset": "shapes", "recipe": "cnn-bow", "objective": objective}
        return SideCell(axes, {"train.epochs": name}, {"i2t_r1": score})

    return Side(name, tuple(cell(*entry) for entry in means.items()), {})


def test_it_says_how_many_cells_are_higher_and_how_many_lower() -> None:
    a = side("a", one=40, two=40, three=40, four=40, same=40)
    b = side("b", one=45, two=40.5, three=35, four=40, same=40)
    text = grid_comparison.write_out(compare(a, b, ["i2t_r1"]), "markdown")
    assert "in 3 of 4 cells tested at 5 % (Holm): higher in 2, lower in 1. 1 cell without a test." in text
