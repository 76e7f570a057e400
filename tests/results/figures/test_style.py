"""How figures look: nothing stands outside the picture."""

from matplotlib.figure import Figure

from goalgrid.results.figures.style import WIDTH, legend_below


def test_a_legend_has_as_many_columns_as_the_figure_has_room_for() -> None:
    for label, columns in (("con_con", 3), ("frozen-bow lin-ms_nca, 0.172 M weights", 2), ("long " * 30, 1)):
        figure = Figure(figsize=(WIDTH, 3), layout="constrained")
        lines = [line for n in range(15) for line in figure.subplots().plot([n])]
        legend_below(figure, lines, [label] * 15, most=3)
        (legend,) = figure.legends
        assert legend._ncols == columns  # type: ignore[attr-defined]
        assert legend.get_window_extent().width <= figure.bbox.width or columns == 1
