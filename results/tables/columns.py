"""The columns of a table's Parquet files, with type, unit and meaning. They are documented in docs/parquet.md."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Column:
    type: pa.DataType
    meaning: str
    unit: str = ""

    def field(self, name: str, **about: str) -> pa.Field:
        """Build the field of a file, with meaning, unit and the non-empty values of `about` as metadata."""
        known = {"meaning": self.meaning, "unit": self.unit, **about}
        return pa.field(name, self.type, metadata={key: text for key, text in known.items() if text})


_TEXT, _NUMBER, _BOOL = pa.string(), pa.float64(), pa.bool_()
METRIC_UNIT = "as of the metric"

PLACE = {
    "block": Column(_TEXT, "title of the row's block; if a paper prints none, the name of the table: `SelHN Table 1`"),
    "row": Column(_TEXT, "name of the row as printed; unique within the table together with `block`"),
}
"""Columns for the place in the table, in both forms."""

PAPER = {
    "paper": Column(_TEXT, "the paper that contains the table"),
    "table": Column(_TEXT, "the table's number in the paper"),
}
"""Columns for the source in a paper, in both forms."""

OF = {
    "dataset": Column(_TEXT, "the data set"),
    "protocol": Column(_TEXT, "the evaluation protocol"),
    "recipe": Column(_TEXT, "the recipe; null if no recipe here matches the paper's row"),
    "objective": Column(_TEXT, "the objective; null if no objective here matches the paper's row"),
    "model": Column(_TEXT, "the model's name in the paper; null in tables of a grid"),
    "loss": Column(_TEXT, "the loss's name in the paper; null in tables of a grid, or if `model` includes it"),
}
"""Columns for the cell, in both forms."""

PARTS = {
    "pair": Column(_TEXT, "the row's pair weight, in GOAL's matrix, or if listed in `--rows` or `--blocks`"),
    "triplet": Column(_TEXT, "the row's triplet weight, if listed in `--rows` or `--blocks`"),
    "seed": Column(pa.int64(), "the seed, if listed in `--rows`, `--columns` or `--blocks`"),
    "metric": Column(_TEXT, "the row's metric, if listed in `--rows` or `--blocks`"),
}
"""Further columns of the wide form in some layouts."""

SWEPT = Column(_TEXT, "swept settings, as `train.lr=0.001 objective.tau=10`; null if there are none")
DIFFERS = Column(_TEXT, "how your training differs from the paper's; null if no difference is known")

VALUES = {
    "n": Column(pa.int32(), "number of seeds in the mean; for a paper's number, its runs, null if not stated", "seeds"),
    "expected": Column(pa.int32(), "number of seeds in the grid; null for a paper's number", "seeds"),
    "mean": Column(_NUMBER, "mean over seeds, unrounded; null if no trial has finished", METRIC_UNIT),
    "std": Column(_NUMBER, "sample standard deviation over seeds; null for fewer than two", METRIC_UNIT),
    "difference": Column(_NUMBER, "ours - paper, with `--against paper`", METRIC_UNIT),
    "standard_error": Column(_NUMBER, "Welch's standard error of the difference", METRIC_UNIT),
    "quoted": Column(_BOOL, "whether the number is quoted from the paper, not measured here"),
    "like_best": Column(
        _BOOL, "with `--marks`: whether the value is not significantly different from the best; null if not tested"
    ),
    "text": Column(_TEXT, "the value as printed"),
}
"""Columns for a value and its statistics; in the wide form named NAME_mean, NAME_std, ..."""
COUNTS = ("n", "expected")
"""If each row of the wide form belongs to one cell, these are columns of the row."""

IS_OF = {
    **PAPER,
    **OF,
    "pair_weight": Column(_TEXT, "the objective's pair weight in GOAL's matrix"),
    "triplet_weight": Column(_TEXT, "the objective's triplet weight in GOAL's matrix"),
    "seed": PARTS["seed"],
    "metric": Column(_TEXT, "the metric, e.g. `i2t_r1` is Recall@1 from image to text"),
    "column": Column(_TEXT, "with `--against paper`: ours, paper or difference"),
    "reported_in": Column(_TEXT, "with `--against paper`: the table that contains the paper's number"),
}
"""Columns for the cell in the long form, followed by the swept settings by dotted name."""
SETTING = Column(_TEXT, "the value of a swept setting")

LONG = {
    **IS_OF,
    **VALUES,
    "trials": Column(pa.list_(_TEXT), "ids of the trials in the mean, in the order of their seeds"),
    "missing": Column(_TEXT, "ids of missing trials, each with the reason; null if none is missing"),
    "note": Column(
        _TEXT, "with `--against paper`: doubts about the paper's number, or different values in other tables"
    ),
    "differs": DIFFERS,
    **PLACE,
    "heading": Column(_TEXT, "the column's headings, in one line"),
}
"""The columns of the long form, in order."""

ALWAYS = (
    *PLACE, "dataset", "protocol", "recipe", "objective", "metric", "n", "expected", "mean", "std", "quoted", "text",
    "trials", "missing", "heading",
)  # fmt: skip
"""Columns of the long form that every table has; the others exist only if some value has them."""

TABLES = {
    "settings": "settings, other than axes, in which the cell differs from other cells of the data set",
    "chosen": "settings of the cell that were chosen on the validation split",
    "validation": "the selection metric: of the chosen point in the search, of the default, the gain over it, and of "
    "the chosen values on fresh seeds",
}
"""Columns of the long form whose values are structs (mostly settings by dotted name), with their meanings."""
