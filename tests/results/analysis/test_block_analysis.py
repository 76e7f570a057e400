"""The analysis of whole grids: from scores to findings, marks and figures, with trials missing or shared."""

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from scipy import stats

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives.goal_matrix import PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.protocols import JUDGED
from goalgrid.grid.store.home import Home
from goalgrid.results import figures
from goalgrid.results.analysis import documents, effects_text
from goalgrid.results.analysis.block_analysis import Analysis, analyse, metrics_of
from goalgrid.results.analysis.factors import parts_of
from goalgrid.results.analysis.observations import Observations, marked
from goalgrid.results.analysis.queries import QueryRanks
from goalgrid.results.figures import Study, training
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.records.record import METRICS
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.reference import curves
from goalgrid.results.reference.matching import reported
from goalgrid.results.reference.reading import Printed
from goalgrid.results.renderers import TEXT, parquet
from goalgrid.results.statistics.pairs import ahead
from goalgrid.results.statistics.significance import seeds_needed

from ...conftest import SMALL

Value = Callable[[Cell, int], float | None]
IMAGES = 40


def cells_of(*words: str) -> list[Cell]:
    return expand(load("demo", [*words, "train.epochs=2"]))


def noise(cell: Cell, seed: int) -> float:
    """A pair weight's effect, what a seed adds to all, and an error."""
    own = np.random.default_rng([seed, *cell.objective.encode(), *str(cell.swept).encode()])
    pair = cell.objective.split("_")[0]
    return 40 + 3.0 * len(pair) + 5 * np.random.default_rng(seed).normal() + own.normal()


def records(cells: list[Cell], value: Value = noise) -> tuple[Scores, QueryRanks]:
    """Records as a grid would leave them, with half the value from text to image; no value: no trial."""
    rows, ranks = {}, {}
    for cell in cells:
        for trial in cell.trials:
            number = value(cell, trial.settings.seed)
            if number is None:
                continue
            metrics = {f"test_{name}": number / (2 if name.startswith("t2i") else 1) for name in METRICS}
            protocol = trial.settings.dataset.protocol
            origin = {"protocol": protocol, "code_fingerprint": "code", "other_metrics": None}
            rows[trial.id] = {"trial_id": trial.id, **origin, **metrics}
            draws = np.random.default_rng(len(rows))
            found = {"i2t": draws.integers(0, 12, IMAGES), "t2i": draws.integers(0, 12, 5 * IMAGES)}
            ranks[trial.id] = {**found, "image": np.repeat(np.arange(IMAGES), 5)}
    return Scores(rows), QueryRanks(ranks)


def analysed(cells: list[Cell], value: Value = noise, metric: str = "r1", **options: object) -> Analysis:
    scores, ranks = records(cells, value)
    return analyse(cells, scores, ranks, metrics_of(metric, "i2t"), **options)[0]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def matrix() -> list[Cell]:
    return cells_of("seeds=[0,1,2,3]")


def test_the_axis_that_matters_is_found(matrix: list[Cell]) -> None:
    one = analysed(matrix)
    assert one.anova
    by_name = {effect.name: effect for effect in one.anova.effects}
    assert by_name["pair weight"].p < 1e-6
    assert by_name["triplet weight"].p > 0.01
    assert list(by_name) == ["pair weight", "triplet weight", "pair weight x triplet weight"]


def test_differences_are_paired_by_seed(matrix: list[Cell]) -> None:
    one = analysed(matrix)
    values = {cell.objective: [noise(cell, seed) for seed in range(4)] for cell in matrix}
    found = next(difference for difference in one.differences if difference.name == "sig-ms_cir")
    theirs = stats.ttest_rel(values["sig-ms_cir"], values["con_con"])
    assert (found.p_t, found.mean) == pytest.approx(
        (theirs.pvalue, np.mean(values["sig-ms_cir"]) - np.mean(values["con_con"]))
    )
    low, high = theirs.confidence_interval()
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))
    assert len(one.differences) == 14
    assert one.baseline == "con_con"


def test_a_baseline_can_be_chosen(matrix: list[Cell]) -> None:
    assert "sig_nca" not in {found.name for found in analysed(matrix, baseline="sig_nca").differences}
    with pytest.raises(UserError, match="Did you mean 'sig_nca'"):
        analysed(matrix, baseline="sig_nac")


def test_a_seed_that_a_cell_lacks_is_left_out_and_said(matrix: list[Cell]) -> None:
    one = analysed(matrix, lambda cell, seed: None if (cell.objective, seed) == ("lin_nca", 2) else noise(cell, seed))
    assert one.seeds == (0, 1, 3)
    assert one.notes == ("seed 2 is left out, missing in: lin_nca",)


def test_cells_without_trials_are_left_out_and_said(matrix: list[Cell]) -> None:
    one = analysed(matrix, lambda cell, seed: None if cell.objective.endswith("cir") else noise(cell, seed))
    assert len(one.names) == 10
    assert "no finished trial: " in one.notes[0]
    assert one.anova
    assert [effect.name for effect in one.anova.effects][:2] == ["pair weight", "triplet weight"]


def test_a_cell_with_one_seed_does_not_cost_all_others_theirs() -> None:
    seen = Observations.shared({
        "a": Score((1.0, 2.0, 3.0), 3, seeds=(0, 1, 2)),
        "b": Score((1.0, 2.0, 4.0), 3, seeds=(0, 1, 2)),
        "c": Score((5.0,), 3, seeds=(2,)),
    })  # fmt: skip
    assert (seen.names, seen.seeds) == (("a", "b"), (0, 1, 2))
    assert seen.notes == ("c is left out: it has only seed 2",)


def test_one_seed_is_described_without_tests() -> None:
    cells = cells_of("seeds=[0]")
    one = analysed(cells)
    text = " ".join(documents.text(effects_text.document([one], cells)).split())
    assert (one.like_best, one.differences) == ((), ())
    assert "so nothing is tested" in text
    assert "add seeds to the grid" in text
    assert "nan" not in text.lower()


def test_a_setting_that_an_objective_lacks_makes_no_second_observation() -> None:
    cells = cells_of("sweep.objective.tau=[1,10]", "seeds=[0,1,2]")
    one = analysed(cells, across=["objective.tau"])
    assert "con_con, lin_con, sig_con, lin-ms_con, sig-ms_con: left out" in one.notes[0]
    assert one.anova
    assert [factor.name for factor in one.anova.factors] == ["pair weight", "triplet weight", "objective.tau"]
    assert one.baseline == "con_nca"
    names = {difference.name for difference in one.differences}
    assert "sig_cir, objective.tau = 10" in names
    assert "con_nca, objective.tau = 1" not in names


def test_without_across_every_sweep_point_is_a_block() -> None:
    cells = cells_of("sweep.objective.tau=[1,10]", "seeds=[0,1,2]")
    assert len(analyse(cells, *records(cells), ["i2t_r1"])) == 2


def test_a_recipe_can_be_a_factor() -> None:
    cells = cells_of('recipes=["cnn-bow","cnn-gru"]', 'objectives=["con_con","unified"]', "seeds=[0,1,2]")
    one = analysed(cells, across=["recipe"])
    assert one.anova
    assert [factor.name for factor in one.anova.factors] == ["objective", "recipe"]


def test_uncertainty_over_queries_is_that_of_images(matrix: list[Cell]) -> None:
    _, ranks = records(matrix)
    ids = [trial.id for trial in matrix[0].trials]
    each = ranks.per_image(ids, "t2i_r5")
    assert each is not None
    literal = [100 * np.mean(ranks.by_trial[i]["t2i"] < 5) for i in ids]
    assert (len(each), each.mean()) == (IMAGES, pytest.approx(np.mean(literal)))
    total = ranks.per_image(ids, "rsum")
    assert total is not None
    parts = [100 * np.mean(ranks.by_trial[i][d] < k) for i in ids for d in ("i2t", "t2i") for k in (1, 5, 10)]
    assert total.mean() == pytest.approx(sum(parts) / len(ids))
    assert ranks.interval(ids, "i2t_medr") is None
    same = ranks.interval(ids, "i2t_r1", minus=ids)
    assert same
    assert (same.low, same.high) == (0.0, 0.0)


@pytest.mark.parametrize("metric", [name for name in METRIC_NAMES if name not in JUDGED])
def test_findings_are_written_in_every_format(metric: str, matrix: list[Cell]) -> None:
    one = analysed(matrix, metric=metric)
    for kind in effects_text.FORMATS:
        assert "sig-ms" in effects_text.write_out([one], matrix, kind)
    text = effects_text.write_out([one], matrix, "terminal")
    assert max(map(len, text.splitlines())) <= 100
    assert documents.finite(one)["best"] == one.best


def test_csv_holds_the_numbers_unrounded(matrix: list[Cell]) -> None:
    one = analysed(matrix)
    rows = list(csv.DictReader(io.StringIO(effects_text.write_out([one], (), "csv"))))
    means = {row["name"]: float(row["value"]) for row in rows if (row["what"], row["quantity"]) == ("cell", "mean")}
    assert means == dict(zip(one.names, one.means, strict=True))


def test_latex_findings_are_well_formed(matrix: list[Cell]) -> None:
    text = effects_text.write_out([analysed(matrix)], matrix, "latex").split("\n", 1)[1]
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
    assert text.count("\\begin") == text.count("\\end{")
    assert not set(text) - set(map(chr, range(128)))


def test_marks_say_what_cannot_be_told_from_the_best(matrix: list[Cell]) -> None:
    scores, ranks = records(matrix)
    plain = arrange(matrix, scores)
    table = marked(plain)
    one = analyse(matrix, scores, ranks, ["i2t_r1"])[0]
    daggers = {e.keys["objective"] for e in table.entries() if e.like_best and e.keys["metric"] == "i2t_r1"}
    assert daggers | {one.best} == set(one.like_best)
    assert one.best not in daggers
    assert (
        "† not distinguishable from the best: no other cell is ahead by more than seeds explain (5 % for all"
        in table.caption
    )
    assert "†" in TEXT["markdown"].render(table)
    assert r"$^{\dagger}$" in TEXT["latex"].render(table)
    assert parquet.tidy(table)["like_best"].to_pylist() == [entry.like_best for entry in table.entries()]


def test_a_table_without_marks_is_as_it_was(matrix: list[Cell]) -> None:
    scores, _ = records(matrix)
    table = arrange(matrix, scores)
    assert "like_best" not in parquet.tidy(table).column_names
    assert "†" not in TEXT["markdown"].render(table)


def test_one_seed_gets_no_marks() -> None:
    cells = cells_of("seeds=[0]")
    table = marked(arrange(cells, records(cells)[0]))
    assert {entry.like_best for entry in table.entries()} == {None}
    assert "Fewer than two cells share two seeds, so nothing is marked." in table.caption
    assert "†" not in table.caption


def test_a_caption_says_which_blocks_a_note_is_about() -> None:
    """con_nca has one seed in the first block, con_cir in the second; the note of both stands without a block."""
    cells = cells_of("seeds=[0,1,2]", 'recipes=["frozen-bow","cnn-bow"]')
    first, second = dict.fromkeys(cell.block for cell in cells)
    lacking = {(first, "con_nca"), (second, "con_cir")}

    def few(cell: Cell, seed: int) -> float | None:
        return None if seed and (cell.block, cell.objective) in lacking else noise(cell, seed)

    plain = arrange(cells, records(cells, few)[0])
    caption = marked(plain).caption
    for title, name in zip([block.title for block in plain.blocks], ("con_nca", "con_cir"), strict=True):
        assert f" {title}: Not compared, since too few of their seeds are shared: {name}." in caption
    one = marked(arrange(cells, records(cells, lambda cell, seed: None if seed else noise(cell, seed))[0]))
    assert one.caption.endswith(" Fewer than two cells share two seeds, so nothing is marked.")
    assert one.caption.count("Fewer") == 1


def test_a_caption_names_the_blocks_in_which_no_cell_has_learnt() -> None:
    """In the second block, all seeds of the best cell are at chance, and one seed of each other cell."""
    cells = cells_of("seeds=[0,1,2]", 'recipes=["frozen-bow","cnn-bow"]')
    scores, _ = records(cells)
    first, second = ([cell for cell in cells if cell.block == block] for block in dict.fromkeys(c.block for c in cells))
    best = max(second, key=lambda cell: scores.of(cell, "i2t_r1").mean)
    chance = {trial.id for cell in (*first, best) for trial in cell.trials} | {cell.trials[0].id for cell in second}
    table = marked(arrange(cells, replace(scores, chance=chance)))
    one, other = table.blocks
    assert (
        f" {one.title}: All cells are no better than chance on the validation split, so none is best." in table.caption
    )
    assert other.title not in table.caption
    assert table.best_of(one) == set()
    bold = [other.rows[row].entries[column] for row, column in table.best_of(other)]
    assert {entry.keys["objective"] for entry in bold if entry} == {
        max((c for c in second if c != best), key=lambda c: scores.of(c, "i2t_r1").mean).objective
    }


def test_printed_numbers_are_said_not_to_be_compared(matrix: list[Cell]) -> None:
    """A paper's table is filled by trials and by numbers as printed; of printed ones alone, nothing is tested."""
    plain = arrange(matrix, records(matrix)[0])
    row = plain.blocks[0].rows[0]
    for count, tested in ((1, True), (len(row.entries), False)):
        printed = tuple(replace(entry, score=Printed("99.0±0.1", n=3)) for entry in row.entries[:count] if entry)
        rows = (replace(row, entries=(*printed, *row.entries[count:])), *plain.blocks[0].rows[1:] * tested)
        caption = marked(replace(plain, blocks=(replace(plain.blocks[0], rows=rows),))).caption
        assert ("†" in caption, "Printed numbers have no seeds and are not compared." in caption) == (tested, tested)


def test_marks_that_rest_on_fewer_seeds_say_so(matrix: list[Cell]) -> None:
    scores, _ = records(
        matrix, lambda cell, seed: None if (cell.objective, seed) == ("lin_nca", 2) else noise(cell, seed)
    )
    assert "Only seeds that all of these cells have count here." in marked(arrange(matrix, scores)).caption
    assert "Only seeds" not in marked(arrange(matrix, records(matrix)[0])).caption


def test_a_cell_that_leads_by_seeds_of_its_own_is_not_taken_for_told_from_the_best(matrix: list[Cell]) -> None:
    def few(cell: Cell, seed: int) -> float | None:
        """con_con is best by the seeds that all have, and con_nca by all; con_cir has one seed, and leads."""
        own = {"con_con": 60.0, "con_nca": 59.9 + 30 * (seed == 3), "con_cir": 99.0}.get(cell.objective, 20.0)
        lacking = seed > 0 if cell.objective == "con_cir" else seed == 3 and cell.objective == "con_con"
        return None if lacking else own + 0.1 * noise(cell, seed)

    table = marked(arrange(matrix, records(matrix, few)[0]))
    daggers = {e.keys["objective"] for e in table.entries() if e.like_best and e.keys["metric"] == "i2t_r1"}
    assert daggers == {"con_con", "con_nca"}, "neither is bold"
    assert "Not compared, since too few of their seeds are shared: con_cir." in table.caption
    found = analysed(matrix, few)
    assert found.best == "con_con"
    caveats = (
        "Only seeds that all of these cells have count here. Not compared, since too few of their seeds are shared:"
    )
    assert f"{found.best} has the best Image → Text, Recall@1 of the 14 cells compared, " in effects_text.finding(found)
    assert f"{caveats} con_cir. If the lead of" in effects_text.finding(found)
    assert " over 3 shared seeds, the best of 14 cells" in effects_text.verdict(found, "con_con")


def test_a_verdict_says_how_a_cell_stands(matrix: list[Cell]) -> None:
    found = analysed(matrix, metric="rsum")
    means = dict(zip(found.names, found.means, strict=True))
    assert effects_text.verdict(found, found.best).startswith(f"rsum {max(found.means):.1f}, the best of 15 cells")
    for difference in found.differences:
        words = effects_text.verdict(found, difference.name).replace(documents.GLUE, " ")
        alike = "not distinguishable" if difference.name in found.like_best else "distinguishable"
        if difference.name != found.best:
            assert words.startswith(f"rsum {means[difference.name]:.1f}; the best is {found.best}, ")
            assert f"{alike} at 5 % (Welch's t, parametric bootstrap)" in words
        assert f"Minus {found.baseline}: {difference.mean:+.1f}, 95 % interval [" in words


def test_a_cell_that_alone_has_the_seeds_is_not_called_the_best(matrix: list[Cell]) -> None:
    def few(cell: Cell, seed: int) -> float | None:
        """con_con has all seeds; con_nca has one, and leads by it."""
        value = {"con_con": 60.0, "con_nca": 99.0}.get(cell.objective)
        return None if cell.objective == "con_nca" and seed > 0 else value

    found = analysed(matrix, few, metric="rsum")
    assert (found.names, found.best) == (("con_con",), "con_con")
    rsum = f"{found.means[0]:.1f}"
    words = f"{found.title}, 1 cell x 4 seeds: con_con has rsum {rsum}, with no other cell to compare."
    assert effects_text.finding(found) == f"{words} Not compared, since too few of their seeds are shared: con_nca."
    assert effects_text.verdict(found, "con_con") == f"rsum {rsum} over 4 shared seeds, with no other cell to compare."
    text = effects_text.write_out([found], matrix, "terminal")
    assert f"Only con_con, {rsum}, with no other cell to compare." in text
    assert "Best:" not in text


def test_a_sentence_says_what_was_found(matrix: list[Cell]) -> None:
    found = analysed(matrix, metric="rsum")
    begin = f"{found.title}, 15 cells x {len(found.seeds)} seeds: {found.best} has the best rsum"
    begin += f", {max(found.means):.1f}"
    named = [name for name in found.like_best if name != found.best]
    first, second = sorted(found.means)[-1:-3:-1]
    assert found.nearest
    assert found.nearest.mean == pytest.approx(first - second)
    seeds = found.nearest.seeds_needed
    assert seeds == seeds_needed(first - second, found.nearest.std)
    ahead = f"lead of {first - second:.1f} over {found.nearest.name}"
    words = f"about {seeds}" if seeds else "more than 1,000"
    lead = f" If the {ahead} is as large as observed, {words} seeds would show it (paired t test, power 0.8)."
    two = replace(found, seeds=found.seeds[:2])
    assert effects_text.finding(two).endswith(f" Two seeds are too few to estimate how many would show its {ahead}.")
    assert effects_text.finding(found).replace(documents.GLUE, " ") == (
        f"{begin}; not distinguishable from it at 5 % (†): {', '.join(named)}.{lead}"
    )
    alone = effects_text.finding(replace(found, like_best=(found.best,)))
    assert alone.replace(documents.GLUE, " ") == f"{begin}; every other cell is distinguishable from it at 5 %."
    assert effects_text.finding(replace(found, like_best=found.names)).endswith(f"(†): all others.{lead}")
    assert effects_text.finding(replace(found, like_best=())) == f"{begin}."


@pytest.fixture(scope="module")
def studies(traced: Home) -> Mapping[str, list[Study]]:
    """Of the trained 2 x 2 grid, of the matrix with made-up histories, and of cells that papers report."""
    small = expand(load("demo", ["seeds=[0,1]", *(word for word in SMALL if word != "--set")]))
    whole = cells_of("seeds=[0,1]")
    scores, _ = records(whole)
    names = ("val_rsum", "delta_s", "s_pos", "s_neg", "active")
    histories = {
        trial: {name: {1: 0.27 + 0.001 * (place % 37), 2: 0.3} for name in names}
        for place, trial in enumerate(scores.rows)
    }
    (part,) = (study.part for study in Study.read(small, Scores.read(small, traced), traced))
    made = Study(replace(part, cells={cell.objective: cell for cell in whole}), scores, histories, traced)
    published = expand(load("goal-table3-coco", ['recipes=["vsepp-r152"]']))
    reported = [Study(part, records(published)[0], {}, traced) for part in parts_of(published)]
    return {
        "partial": Study.read(small, Scores.read(small, traced), traced),
        "whole": [made],
        "published": reported,
    }


def nothing_is_cut_off(drawn: Path) -> None:
    pixels = image.imread(drawn)[..., :3]
    assert pixels[[0, -1]].min() > 0.95, "something is cut off at the upper or lower edge"
    assert pixels[:, [0, -1]].min() > 0.95, "something is cut off at the left or right edge"


FROM_FILES = ("steps", "sensitivity", "triplets", "geometry", "pooling", "speed", "search")
"""Figures of what a made-up block lacks: files beside the records, swept numbers, and choices."""


@pytest.mark.gate
def test_a_figure_is_drawn_equal_to_the_byte(studies: Mapping[str, list[Study]], tmp_path: Path) -> None:
    """In the formats that hold names and dates beside what is drawn."""
    first, second = (
        figures.write(figures.draw_all(studies["whole"], ["matrix"]), tmp_path / name, ["pdf", "svg"]) for name in "12"
    )
    assert [path.suffix for path in first] == [".pdf", ".svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize("kind", [kind for kind in figures.FIGURES if kind not in FROM_FILES])
def test_nothing_of_a_figure_is_cut_off(kind: str, studies: Mapping[str, list[Study]], tmp_path: Path) -> None:
    drawn = studies["published" if kind == "paper" else "whole"]
    nothing_is_cut_off(figures.write(figures.draw_all(drawn, [kind]), tmp_path, ["png"])[0])


@pytest.mark.parametrize(
    "kind", [kind for kind in figures.FIGURES if kind not in ("paper", "sensitivity", "pooling", "speed", "search")]
)
def test_nothing_of_a_half_finished_grids_figure_is_cut_off(
    kind: str, studies: Mapping[str, list[Study]], tmp_path: Path
) -> None:
    (drawn,) = figures.write(figures.draw_all(studies["partial"], [kind]), tmp_path, ["png"])
    nothing_is_cut_off(drawn)


def test_training_draws_the_means_of_what_was_logged_and_the_epochs_until_near(
    studies: Mapping[str, list[Study]],
) -> None:
    (study,) = studies["whole"]
    drawn = figures.FIGURES["training"].draw(study)
    assert drawn
    first, below = drawn.axes[0], drawn.axes[-3]  # of the first triplet weight, with a line a pair weight
    names = [name for name in study.part.cells if name.endswith(f"_{next(iter(TRIPLET_WEIGHTS))}")]
    assert len(first.lines) == len(names)
    quantity = next(name for name in training.QUANTITIES if name in next(iter(study.histories.values())))
    for line, band, name in zip(first.lines, first.collections, names, strict=True):
        of_seeds = [study.histories[trial.id][quantity] for trial in study.part.cells[name].trials]
        expected = [sum(values[epoch] for values in of_seeds) / len(of_seeds) for epoch in of_seeds[0]]
        assert list(line.get_ydata()) == pytest.approx(expected)
        edges = band.get_paths()[0].vertices
        for epoch in of_seeds[0]:
            own = [values[epoch] for values in of_seeds]
            heights = [y for x, y in edges if x == epoch]
            bounds = [statistics.fmean(own) + side * statistics.stdev(own) for side in (-1, 1)]
            assert [min(heights), max(heights)] == pytest.approx(bounds)
    marks = [sorted(line.get_xdata()) for line in below.lines if line.get_linestyle() == "None"]
    expected = []
    for name in names:
        until = []
        for trial in study.part.cells[name].trials:
            rsums = study.histories[trial.id]["val_rsum"]
            last = rsums[max(rsums)]
            until.append(next(epoch for epoch in sorted(rsums) if rsums[epoch] >= 0.95 * last))
        expected.append(sorted(until))
    assert marks == expected
    assert [text.get_text() for text in below.texts] == [f"mean {statistics.fmean(epochs):.1f}" for epochs in expected]


def test_marks_stand_beside_the_name_of_their_pair_weight_where_columns_have_others(
    studies: Mapping[str, list[Study]],
) -> None:
    (study,) = studies["whole"]
    some = {name: cell for name, cell in study.part.cells.items() if name in ("con_con", "sig_cir")}
    drawn = figures.FIGURES["training"].draw(replace(study, part=replace(study.part, cells=some)))
    assert drawn
    labels = [label.get_text() for label in drawn.axes[-2].get_yticklabels()]
    for axes, name in zip(drawn.axes[-2:], ("con", "sig"), strict=True):
        (height,) = {round(float(y)) for line in axes.lines if line.get_linestyle() == "None" for y in line.get_ydata()}
        assert f"{{{name}}}" in labels[height]


def test_the_matrix_shows_each_cells_mean_at_its_place_in_both_directions(
    studies: Mapping[str, list[Study]],
) -> None:
    (study,) = studies["whole"]
    drawn = figures.FIGURES["matrix"].draw(study)
    assert drawn
    for axes, direction in zip(drawn.axes[:2], ("i2t", "t2i"), strict=True):
        scores = [
            [study.scores.of(study.part.cells[f"{pair}_{triplet}"], f"{direction}_r1") for triplet in TRIPLET_WEIGHTS]
            for pair in PAIR_WEIGHTS
        ]
        means = np.array([[score.mean for score in row] for row in scores])
        assert np.asarray(axes.collections[0].get_array()) == pytest.approx(means)
        texts = {tuple(int(place) for place in text.get_position()): text for text in axes.texts}
        assert len(texts) == means.size
        for (column, row), text in texts.items():
            assert text.get_text().replace("\n", " ") == scores[row][column].text
            assert (text.get_weight() == "bold") == (means[row, column].round(1) == means.max().round(1))
        assert axes.get_title() == study.directions[direction]


@pytest.mark.parametrize("columns", [None, 1, 2])
def test_the_matrixs_entries_stay_in_their_cells(studies: Mapping[str, list[Study]], columns: int | None) -> None:
    """Those with the most to say, where a seed is missing."""
    (study,) = studies["whole"]
    cells = cells_of("seeds=[0,1,2]")
    scores, _ = records(cells)
    found = {trial: row for trial, row in scores.rows.items() if not trial.partition("_s2-")[1]}
    part = replace(study.part, cells={cell.objective: cell for cell in cells})
    with figures.drawn_for(figures.Sheet(columns)):
        lacking = replace(study, part=part, scores=replace(scores, rows=found))
        ((_, _, drawn),) = figures.draw_all([lacking], ["matrix"])
        drawn.draw_without_rendering()
    for axes in drawn.axes[:2]:
        for text in axes.texts:
            assert text.get_text().endswith("(2/3)")
            across, along = axes.transData.inverted().transform(text.get_window_extent()).T
            column, row = text.get_position()
            assert abs(across - column).max() < 0.5
            assert abs(along - row).max() < 0.5


def test_main_effects_are_the_means_of_rows_and_columns_and_lines_the_cells(
    studies: Mapping[str, list[Study]],
) -> None:
    (study,) = studies["whole"]
    drawn = figures.FIGURES["effects"].draw(study)
    assert drawn
    for place, direction in enumerate(("i2t", "t2i")):
        of_pairs, of_triplets, crossing = drawn.axes[3 * place : 3 * place + 3]
        means = np.array(
            [
                [
                    study.scores.of(study.part.cells[f"{pair}_{triplet}"], f"{direction}_r1").mean
                    for triplet in TRIPLET_WEIGHTS
                ]
                for pair in PAIR_WEIGHTS
            ]
        )
        by_seed = np.array(
            [
                [
                    study.scores.of(study.part.cells[f"{pair}_{triplet}"], f"{direction}_r1").values
                    for triplet in TRIPLET_WEIGHTS
                ]
                for pair in PAIR_WEIGHTS
            ]
        )
        for axis, (axes, expected) in enumerate(((of_pairs, means.mean(1)), (of_triplets, means.mean(0)))):
            assert axes.containers[0][0].get_ydata() == pytest.approx(expected)
            verdicts = ahead(by_seed.mean(1 - axis))
            assert verdicts is not None
            daggers = [text.xy[0] for text in axes.texts if text.get_text() == "†"]
            assert daggers == np.flatnonzero(~verdicts.any(axis=1)).tolist()
        assert np.array([line.get_ydata() for line in crossing.lines]) == pytest.approx(means)


def test_a_papers_curve_stands_beside_the_same_quantity_with_all_printed_numbers(
    studies: Mapping[str, list[Study]],
) -> None:
    curve = curves.printed_curve("2ad-figureA1")
    assert sum(map(len, curve.lines.values())) == 46
    assert (curve.lines["adopt"][0], curve.lines["triplet-hn"][-1]) == (356.4, 417.8)
    (study,) = studies["whole"]
    own, cell = next(iter(study.part.cells.items()))
    as_own = replace(curve, dataset=cell.dataset, lines={own: curve.lines["adopt"]})
    drawn = training.draw(study, ["val_rsum"], as_own)
    assert drawn
    printed = [line for line in drawn.axes[0].lines if line.get_fillstyle() == "none"]
    assert [list(line.get_ydata()) for line in printed] == [list(curve.lines["adopt"])]
    assert [list(line.get_xdata()) for line in printed] == [list(curve.epochs)]


def test_papers_and_ours_stand_on_equal_axes_a_point_an_objective(studies: Mapping[str, list[Study]]) -> None:
    (study,) = studies["published"]
    drawn = figures.FIGURES["paper"].draw(study)
    assert drawn
    for axes, metric in zip(drawn.axes, ("i2t_r1", "t2i_r1"), strict=True):
        low, high = axes.get_xlim()
        assert (low, high) == axes.get_ylim()
        points = {(float(c[0].get_xdata()[0]), float(c[0].get_ydata()[0])) for c in axes.containers}
        numbers, room = [number for point in points for number in point], 0.06 * (high - low)
        assert low + room < min(numbers) < max(numbers) < high - room, "the frame cuts a marker"
        found = reported(list(study.part.cells.values()), study.scores, [metric])
        expected = set()
        for cell in study.part.cells.values():
            theirs = found.of(cell, metric)
            assert theirs
            expected.add((theirs.value.mean, study.scores.of(cell, metric).mean))
        assert points == expected
        assert len(points) == 15


def test_what_no_paper_reports_is_not_drawn_beside_one(studies: Mapping[str, list[Study]]) -> None:
    assert figures.FIGURES["paper"].draw(studies["whole"][0]) is None


def test_other_objectives_have_curves_and_no_matrix(tmp_path: Path, studies: Mapping[str, list[Study]]) -> None:
    cells = cells_of('objectives=["con_con","unified","selhn"]', "seeds=[0,1]")
    scores, _ = records(cells)
    histories = dict.fromkeys(scores.rows, studies["whole"][0].histories[next(iter(studies["whole"][0].histories))])
    by_name = {cell.objective: cell for cell in cells}
    part = replace(studies["whole"][0].part, cells=by_name, places={name: (name,) for name in by_name})
    study = Study(part, scores, histories, studies["whole"][0].home)
    names = {path.name.split("-")[0] for path in figures.write(figures.draw_all([study]), tmp_path, ["svg"])}
    assert "matrix" not in names
    assert names >= {"effects", "training", "diagnostics"}


def test_seeds_without_a_spread_are_no_evidence() -> None:
    """Two seeds that differ alike in all cells: no test, no interval, no mark; the differences stand."""
    cells = cells_of("seeds=[0,1]", 'objectives=["con_con","sig-ms_cir"]')
    one = analysed(cells, lambda cell, seed: 50.0 + seed + 0.7 * (cell.objective == "sig-ms_cir"))
    [difference] = one.differences
    assert difference.mean == pytest.approx(0.7)
    assert [math.isnan(p) for p in (difference.p_t, difference.holm_t)] == [True, True]
    assert math.isnan(difference.interval.low)
    assert difference.seeds_needed is None
    assert one.like_best == ()
    text = effects_text.write_out([one], cells, "markdown")
    assert "0.001" not in text
    assert r"| sig-ms\_cir | 51.2 | +0.7 | -- | -- | -- | -- |" in text
    json.dumps(documents.finite(one), allow_nan=False)
    scores, _ = records(cells, lambda cell, seed: 50.0 + 0.7 * (cell.objective == "sig-ms_cir"))
    table = marked(arrange(cells, scores))
    assert "show no spread over seeds, so nothing is marked" in table.caption
    assert {entry.text for entry in table.entries()} == {"50.0 ± 0.0", "50.7 ± 0.0", "25.0 ± 0.0", "25.4 ± 0.0"}


def test_captions_are_resampled_with_their_own_images() -> None:
    """Images with one to nine captions, not in their order; the number of captions is a multiple of the images'."""
    counts = np.array([1, 9, 5, 2, 8] * 8)
    owners = np.random.default_rng(0).permutation(np.repeat(np.arange(40), counts))
    hit = owners % 5 == 1  # all captions of the images with nine
    ranks = QueryRanks({"t": {"i2t": np.zeros(40, int), "t2i": np.where(hit, 0, 50), "image": owners}})
    values = ranks.per_image(["t"], "t2i_r1")
    assert values is not None
    assert values.mean() == pytest.approx(100 * hit.mean())
    interval = ranks.interval(["t"], "t2i_r1")
    draws = np.random.default_rng(1).integers(0, 40, (4000, 40))
    literal = [100 * (9 * (row % 5 == 1).sum()) / counts[row].sum() for row in draws]
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(literal, [2.5, 97.5])), abs=4)
    unknown = QueryRanks({"t": {name: ranks.by_trial["t"][name] for name in ("i2t", "t2i")}})
    assert unknown.interval(["t"], "t2i_r1") is None
    assert unknown.interval(["t"], "rsum") is None
    assert unknown.interval(["t"], "i2t_r1") is not None


def test_two_cells_of_two_seeds_are_told_apart_and_a_single_seed_tells_nothing() -> None:
    def of(*rows: list[float]) -> list[str]:
        names = ("a", "b")[: len(rows)]
        return Observations(names, tuple(range(len(rows[0]))), np.array(rows)).like_best()

    assert of([1.0, 2.0], [9.0, 10.1]) == ["b"]
    assert of([1.0, 9.0], [2.0, 8.5]) == ["a", "b"]
    assert of([1.0], [9.0]) == of([1.0, 9.0]) == []
