"""Tables as LaTeX that an author pastes: the papers' names, notes that are explained, and sizes that fit."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.reports.tables import draw
from goalgrid.results import renderers
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.records.scores import Score
from goalgrid.results.reference.coverage import paper_rows
from goalgrid.results.reference.reading import table_names
from goalgrid.results.renderers import latex
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.latex_style import LatexStyle
from goalgrid.results.tables.legend import Legend, Sentence
from goalgrid.results.tables.notation import check_set
from goalgrid.results.tables.paper_words import PaperWords
from goalgrid.state.papers import shipped
from tests.cases import every
from tests.tex import compiled, needed

from ...paper_records import write_table
from ..layouts.test_published import synthetic

LOSSES = ["triplet", "triplet-hn", "selhn", "unified", "con_cir"]


def cells(name: str, **lists: list[str]) -> list[Cell]:
    return expand(load(name, [f"{field}={values!r}" for field, values in lists.items()]))


def set_as(table: Table, **style: object) -> str:
    return latex.render(replace(table, latex=LatexStyle(**style)))  # type: ignore[arg-type]


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.endswith("\\\\") and "multicolumn" not in line][1:]


def notes(text: str) -> str:
    ((said,),) = [re.findall(r"\\footnotesize\n(.*?)\n\\end\{(?:minipage|tablenotes)\}", text, re.DOTALL)]
    return said


def letters_of(texts: Iterable[str]) -> set[str]:
    found = (re.findall(r"(?:\\textsuperscript\{|\\item\[)([a-z,]+)[}\]]", text) for text in texts)
    return {letter for groups in found for group in groups for letter in group.split(",")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """SelHN Table 1 with numbers of ours, whose rows differ in several ways."""
    home = Home(tmp_path_factory.mktemp("runs"))
    write_table(home, "selhn-table1")
    return draw(TableRequest("", paper="selhn-table1"), home)


def test_names_are_the_papers() -> None:
    ours = cells("selhn-table1", recipes=["vse-fc", "vse-mlp"], objectives=LOSSES, datasets=["coco"])
    text = latex.render(arrange(ours, synthetic(ours), layout="losses"))
    assert [row.partition(" & ")[0] for row in rows(text)] == [
        f"{model}, {loss}"
        for model in ("VSE (FC)", "VSE (MLP)")
        for loss in ("Triplet", "Triplet-HN", "SelHN", "Unified loss", r"$P^{\mathrm{con}}\,T^{\mathrm{cir}}$")
    ]
    assert r"\caption{Recall (\%) and rsum, the sum of the six recalls, on MS-COCO 5K.}" in text
    assert not re.search(r"vse-|coco|selhn|triplet-hn|train\.", text.partition("\\begin")[2])


def test_pages_hold_the_papers_names_for_those_who_copy_a_table() -> None:
    ours = cells("selhn-table1", recipes=["vse-fc"], objectives=["triplet-hn"])
    page = renderers.TEXT["html"].render(arrange(ours, synthetic(ours)))
    assert '<span data-text="triplet-hn" data-latex="Triplet-HN">triplet-hn</span>' in page
    assert '<span data-text="vse-fc on flickr30k" data-latex="VSE (FC)">vse-fc on flickr30k</span>' in page


def test_videos_and_a_users_data_have_names_too() -> None:
    ours = cells("unified-table4", objectives=["unified"], datasets=["msr-vtt-1k-a"], recipes=["mmt"])
    text = latex.render(arrange(ours, synthetic(ours), layout="losses"))
    assert "on MSR-VTT 1k-A.}" in text
    assert "msr-vtt" not in text
    own = expand(load("demo", ['datasets=["birds"]', 'data.birds.root="nowhere"', 'objectives=["con_con"]']))
    assert r"\caption{Recall@1 (\%) on birds.}" in latex.render(arrange(own, synthetic(own)))


def test_recipes_of_one_name_keep_their_own() -> None:
    ours = cells("selhn-table1", recipes=["bfan-equal", "bfan-equal-coco"], objectives=["triplet-hn"])
    text = latex.render(arrange(ours, synthetic(ours), layout="losses"))
    assert [row.partition(" & ")[0] for row in rows(text)] == ["bfan-equal, Triplet-HN", "bfan-equal-coco, Triplet-HN"]


def test_a_recipe_of_ones_own_has_the_name_that_it_gives_itself(tmp_path: Path) -> None:
    file = tmp_path / "g.toml"
    file.write_text(
        'name = "g"\ndatasets = ["shapes"]\nrecipes = ["mine"]\nobjectives = ["con_con"]\nseeds = [0]\n'
        '[recipe.mine]\nextends = "vse-fc"\ndescription = "d"\nknown_as = "MyVSE"\n'
    )
    ours = expand(load(str(file)))
    assert "{MyVSE}" in latex.render(arrange(ours, synthetic(ours)))


@every("layout", ["losses", "methods"])
def test_the_only_recipe_is_said_once(layout: str) -> None:
    ours = cells("selhn-table1", recipes=["vse-fc"], objectives=LOSSES)
    table = arrange(ours, synthetic(ours), layout=layout)
    assert [row.label.text for row in table.blocks[0].rows] == LOSSES
    assert table.blocks[0].title.startswith("vse-fc on ")
    assert latex.render(table).count("VSE (FC)") == 1


def test_rules_are_between_groups_of_rows() -> None:
    text = set_as(draw(TableRequest("unified-table1", reference=True), Home(Path("nowhere"))))
    body = text[text.index("RSUM \\\\") :]
    first = [[line.partition(" & ")[0] for line in part.splitlines()] for part in body.split("\\midrule\n")[1:]]
    assert [group[0] for group in first] == ["SCAN*", "VSE++ (BUTD)", "BFAN*", "SGRAF*"]
    assert len(first[0]) == 7


@pytest.mark.gate
@every("width", ["column", "text"])
@every("form", ["plain", "threeparttable"])
@every("caption", ["", "Mine"])
def test_every_letter_is_explained_and_the_rest_counted(width: str, form: str, caption: str, filled: Table) -> None:
    text = set_as(filled, width=width, notes=form, caption=caption)
    shown = notes(text)
    assert letters_of(rows(text)) == letters_of([shown])
    differing = {row.notes for block in filled.blocks for row in block.rows if row.notes}
    assert len(differing) > 1
    explained = len(letters_of([shown]))
    assert not re.search(r"^%\s*$", text, re.MULTILINE)
    everything = len({note for notes in differing for note in notes})
    assert ("in the supplement" in shown) == (explained < everything or "All rows: " not in shown)
    assert (r"\caption{Mine" in text) == bool(caption)


def remarked(**remarks: tuple[str, ...]) -> Table:
    """A table of rows with remarks, by name."""
    entry = TableEntry(Score((), expected=0), {"differs": "x"})
    body = tuple(Row(Label(label), (entry,), notes=of_row) for label, of_row in remarks.items())
    legend = Legend.of(Sentence("Title"), [Sentence("Ours: mean."), Sentence("Run goalgrid\nagain.", printed="")])
    return Table("t", Label("row"), (Group(Label(""), (Label("RSUM"),)),), (Block("", body),), legend)


def test_a_row_with_several_notes_has_their_letters_and_the_others_are_counted() -> None:
    long = "a remark that is longer than all the room that there is for notes " * 4
    rows_of = {"one": ("first", "second"), "two": ("second",), "three": (long,), "four": (long, "first")}
    text = latex.render(remarked(**rows_of))
    labels = [line.partition(" & ")[0] for line in rows(text)]
    raised = [re.sub(r"\\textsuperscript\{(.*)\}", r" \1", label) for label in labels]
    assert raised == ["one a,b", "two b", "three", "four a"]
    assert notes(text).splitlines() == [
        "Ours: mean.",
        r"\textsuperscript{a}\,first.",
        r"\textsuperscript{b}\,second.",
        "Further notes on 2 rows are in the supplement.",
    ]


def test_a_letter_stands_apart_from_the_superscript_of_a_weight() -> None:
    text = latex.render(remarked(**{"P^sig": ("it differs",)}))
    assert r"$P^{\mathrm{sig}}$~\textsuperscript{a} & " in text


def test_what_no_reader_needs_is_a_comment() -> None:
    text = latex.render(remarked(one=()))
    assert "\n% Run goalgrid again.\n" in text
    assert "goalgrid" not in text.partition("\\begin")[2]


@pytest.mark.gate
def test_remarks_on_the_papers_rows_are_prose() -> None:
    words = PaperWords({}, {})
    remarks = {text for name in table_names() for row in paper_rows(name, shipped()) for text in row.differs}
    odd = re.compile(r"docs/|goalgrid|\b(?:train|model|objective|dataset)\.[a-z]|-\{\}-")
    assert len(remarks) > 30
    check_set("".join(map(words, remarks)))
    assert [text for text in remarks if odd.search(words(text))] == []


def test_a_table_that_is_too_wide_for_a_column_says_so_to_its_author() -> None:
    table = draw(TableRequest("2ad-table1", reference=True), Home(Path("nowhere")))
    assert "\n% scaled to about " in set_as(table, width="column")
    assert "% scaled" not in set_as(table, width="text") + set_as(table)


@every("width", ["column", "text"])
def test_a_caption_of_ones_own_keeps_what_the_signs_mean(width: str) -> None:
    table = draw(TableRequest("unified-table6", reference=True), Home(Path("nowhere")))
    table = table.saying("Padding that fills the notes of a column. " * 4, "‡: quoted.")
    text = set_as(table, width=width, caption="Mine")
    assert r"\caption{Mine" in text
    shown = text.partition("\\begin")[2]
    assert all(sign in shown for sign in ("*: ensemble of two models", r"$^{\ddagger}$: quoted.", "Padding"))


def test_references_go_or_are_cited() -> None:
    table = draw(TableRequest("unified-table7", reference=True), Home(Path("nowhere")))
    assert not re.search(r"\[\d+\]", set_as(table).partition("\\begin")[2])
    text = set_as(table, cite={"23": "scan18"})
    assert "SCAN I2T AVG + Triplet-HN~\\cite{scan18} & " in text
    assert "SCAN I2T AVG + SSP & " in text
    with pytest.raises(UserError, match=r"--cite 99=x: no row of this table has \[99\]; its references are 7, 11, 20"):
        set_as(table, cite={"99": "x"})


@every(("siunitx", "circle"), [(False, "Circle loss~\\cite{circle} \\\\"), (True, "{Circle loss~\\cite{circle}} \\\\")])
def test_references_in_place_of_numbers_go_or_are_cited(siunitx: bool, circle: str) -> None:
    table = draw(TableRequest("goal-table1", reference=True), Home(Path("nowhere")))
    text = set_as(table, cite={"29": "circle"}, siunitx=siunitx).partition("\\begin")[2]
    assert circle in text
    assert not re.search(r"\[\d+\]", text)


def test_plain_is_the_tabular_alone() -> None:
    text = set_as(remarked(one=("first",)), plain=True)
    _, *lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert text.startswith("% needs \\usepackage{booktabs}\n")
    assert lines[-1] == "\\end{tabular}"
    assert "textsuperscript" not in text
    assert "\n% Ours: mean." in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plain": True, "caption": "x"}, "--plain prints only the tabular, so it cannot be combined with --caption"),
        ({"width": "colum"}, "unknown width 'colum'. Did you mean 'column'?"),
        ({"notes": "below"}, "unknown form of notes 'below'"),
        ({"label": "tab:}"}, "--label 'tab:}' is invalid: use only letters"),
        ({"label": "tab:größe"}, "is invalid: use only letters"),
        ({"label": "a\n\nb"}, "is invalid: use only letters"),
        ({"cite": ("scan18",)}, "--cite scan18: give the number in brackets and a key"),
        ({"cite": ("23=a=b",)}, "--cite 23=a=b: give the number in brackets and a key"),
        ({"caption": " "}, "--caption is empty; omit it"),
        ({"caption": "鳥 and ą"}, "pdflatex cannot typeset '鳥', 'ą'; use other"),
    ],
)
def test_options_that_cannot_be_set_are_one_error(options: dict[str, object], message: str) -> None:
    request = TableRequest("selhn-table1", reference=True, **options)  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        latex.render(draw(request, Home(Path("nowhere"))))
    assert message in str(caught.value)


ODD = "50 % } of {\n\n \\section #1 & ~^_ $x$ | <é ß ő> “q” – λ τ ≤ 3 × 10³ … §4 © ® ™ • ∈ √"


def test_odd_captions_and_names_are_set_as_they_are(tmp_path: Path) -> None:
    table = draw(TableRequest("selhn-table1", reference=True), Home(Path("nowhere")))
    body = (*table.blocks[0].rows, replace(table.blocks[0].rows[0], words=(Label(ODD), Label("x"))))
    text = set_as(replace(table, blocks=(Block(ODD, body),)), caption=ODD, label="tab:a_b-1")
    compiled(text, needed(text), tmp_path)


@pytest.mark.gate
@every("page", ["twocolumn", "onecolumn"])
def test_tables_fit_their_page_and_their_notes_three_lines(page: str, filled: Table, tmp_path: Path) -> None:
    """Twelve tables, four of them of users' grids, in every form; TeX says how many lines the notes have."""
    ours, matrix = cells("selhn-table3", objectives=LOSSES), cells("goal-table3-coco")
    scores = synthetic(ours)
    tables = [arrange(ours, scores, layout=layout) for layout in ("listing", "losses", "methods")]
    tables.append(arrange(matrix, synthetic(matrix)))
    names = ("goal-table3-coco", "goal-table6", "selhn-table3", "unified-table1", "unified-table7")
    names += ("2ad-table1", "2ad-table4")
    tables += [filled, *(draw(TableRequest(name, reference=True), Home(Path("nowhere"))) for name in names)]
    texts = [
        set_as(table, width=width, notes=form)
        for table in tables
        for width in ("column", "text")
        for form in ("plain", "threeparttable")
    ]
    end, count = r"\n(\\end\{(?:minipage|tablenotes)\})", r"\\par\\typeout{LINES \\the\\prevgraf}\n\1"
    counted = (re.sub(end, count, text) for text in texts)
    packages = sorted({name for text in texts for name in needed(text).split(",")})
    shown = compiled("\\clearpage\n".join(counted), ",".join(packages), tmp_path, page)
    assert [line for line in shown.splitlines() if "Overfull" in line] == []
    lines = list(map(int, re.findall(r"LINES (\d+)", shown)))
    assert len(lines) >= len(texts)
    assert max(lines) <= 3


@every("width", ["column", "text"])
def test_a_table_is_never_larger_than_it_is(width: str, tmp_path: Path) -> None:
    """A small table keeps its width: TeX measures it as it is, and as it is set."""
    ours = cells("demo", objectives=["con_con", "unified"])
    table = arrange(ours, synthetic(ours), axes=Axes(rows=("objective",), columns=("metric",)), metric="rsum")
    text = set_as(table, width=width)
    tabular = re.search(r"\\begin\{tabular\}.*\\end\{tabular\}", text, re.DOTALL)
    assert tabular
    box = re.search(r"\\begin\{adjustbox\}.*\\end\{adjustbox\}", text, re.DOTALL)
    assert box
    measure = "\n".join(re.findall(r"\\small|\\setlength.*", text))
    body = f"{{{measure}\\sbox0{{{tabular[0]}}}\\sbox2{{{box[0]}}}\\typeout{{SIZES \\the\\wd0 \\the\\wd2}}}}\n"
    shown = compiled(body + text, needed(text), tmp_path)
    sizes = re.search(r"SIZES ([\d.]+)pt([\d.]+)pt", shown)
    assert sizes
    assert sizes[1] == sizes[2]
