"""A grid is shown by the protocol of the table that it is named after."""

from goalgrid.grid import catalog
from goalgrid.grid.gridfile import load
from goalgrid.results.reference.reading import paper_table, table_names
from goalgrid.state.papers import usual_protocol
from tests.cases import every


def table_of(grid: str) -> str:
    """The table that a shipped grid is named after; empty: none."""
    return max((name for name in table_names() if grid == name or grid.startswith(f"{name}-")), key=len, default="")


@every("name", [name for name in catalog.names("presets") if table_of(name)])
def test_a_grid_named_after_a_table_is_shown_by_its_protocol(name: str) -> None:
    parts = paper_table(table_of(name)).parts
    grid = load(name)
    wanted = {part.protocol for part in parts if part.dataset == "coco" and "coco" in grid.datasets}
    assert {usual_protocol(grid)} == (wanted or {None})


@every(
    ("overrides", "protocol"),
    [
        ([], "coco-5x1k"),
        (['datasets=["flickr30k"]'], None),
        (["dataset.protocol=coco-5k"], "coco-5k"),
        (['sweep.dataset.protocol=["coco-5k","coco-5x1k"]'], None),
        (['tables=["unified-table6","unified-table1"]'], "coco-5k"),
        (["tables=[]"], None),
        (['tables=["no-such-table"]'], None),
    ],
)
def test_the_first_table_decides_unless_the_grid_sets_a_protocol(overrides: list[str], protocol: str | None) -> None:
    coco = ['datasets=["coco"]', 'recipes=["scan-coco"]', "exclude=[]"]
    assert usual_protocol(load("unified-table1", [*coco, *overrides])) == protocol
