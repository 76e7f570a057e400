"""Cells of two grids: which correspond, what they are called, and how often a pair counts."""

from goalgrid.results.analysis.grid_comparison import Side, SideCell, compare
from goalgrid.results.records.scores import Score


def side(name: str, *cells: tuple[dict[str, str], str]) -> Side:
    """A grid whose cells have these swept values, and these trials of two seeds."""
    return Side(name, tuple(cell(axes, trial) for axes, trial in cells), {})


def cell(swept: dict[str, str], trial: str) -> SideCell:
    objective = trial.split("-")[0]
    axes = {"dataset": "shapes", "recipe": "cnn-bow", "objective": objective, **swept}
    settings = {"train.lr": "0.1", **{axis: value for axis, value in swept.items() if objective != "con_con"}}
    score = Score((1.0, 2.0 + len(trial)), 2, trials=(f"{trial}0", f"{trial}1"), seeds=(0, 1))
    return SideCell(axes, settings, {"i2t_r1": score})


def test_a_pair_of_the_same_trials_counts_once_and_names_say_what_differs() -> None:
    taus = [{"objective.tau": "1"}, {"objective.tau": "10"}]
    a = side("a", *((tau, "con_con-a") for tau in taus), (taus[1], "con_nca-a"), (taus[0], "lin_nca-a"))
    cells = [(taus[0], "con_con-b"), (taus[1], "con_con-b"), (taus[1], "con_nca-b")]
    b = side("b", *(({**tau, "train.lr": lr}, trial + lr) for lr in ("0.1", "0.2") for tau, trial in cells))
    found = compare(a, b, ["i2t_r1"])
    assert [row.name for row in found.differences] == [
        "con_con, train.lr = 0.1",
        "con_con, train.lr = 0.1 | 0.2",
        "con_nca, objective.tau = 10, train.lr = 0.1",
        "con_nca, objective.tau = 10, train.lr = 0.1 | 0.2",
    ]
    assert found.alone == ("Only a has 1 cell: shapes, cnn-bow, lin_nca, objective.tau = 1.",)
    (same,) = compare(a, side("c", (taus[1], "con_nca-c")), ["i2t_r1"]).differences
    assert same.how == "equal in every seed: no test"
