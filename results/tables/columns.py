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
    "block": Column(_TEXT, "the title above the row; where the paper prints none, the table: `SelHN Table 1`"),
    "row": Column(_TEXT, "the name of the row as printed; with `block` it tells the rows of a table apart"),
}
"""Columns for the place in the table, in both forms."""

PAPER = {
    "paper": Column(_TEXT, "the paper whose table it is"),
    "table": Column(_TEXT, "the table's number in the paper"),
}
"""Columns for the source in a paper, in both forms."""

OF = {
    "dataset": Column(_TEXT, "the data set"),
    "protocol": Column(_TEXT, "the protocol that evaluates it"),
    "recipe": Column(_TEXT, "the recipe; null for a row of a paper that no recipe here trains"),
    "objective": Column(_TEXT, "the objective; null for a row of a paper that no objective here trains"),
    "model": Column(_TEXT, "the paper's name of the model; null in a table of a grid"),
    "loss": Column(_TEXT, "the paper's name of the loss; null in a table of a grid, or if `model` includes it"),
}
"""Columns for the cell, in both forms."""

PARTS = {
    "pair": Column(_TEXT, "the pair weight of a row, in GOAL's matrix or if `--rows` or `--blocks` name it"),
    "triplet": Column(_TEXT, "the triplet weight of a row, if `--rows` or `--blocks` name it"),
    "seed": Column(pa.int64(), "the seed, if `--rows`, `--columns` or `--blocks` name it"),
    "metric": Column(_TEXT, "the metric of a row, if `--rows` or `--blocks` name it"),
}
"""Further columns of the wide form in some layouts."""

SWEPT = Column(_TEXT, "swept settings, as `train.lr=0.001 objective.tau=10`; null without any")
DIFFERS = Column(_TEXT, "how your training differs from the source of the paper's numbers; null where nothing is known")

VALUES = {
    "n": Column(
        pa.int32(), "seeds that the mean is over; of a paper's number its runs, null if it does not say", "seeds"
    ),
    "expected": Column(pa.int32(), "seeds that the grid asks for; null for a number of a paper", "seeds"),
    "mean": Column(_NUMBER, "the mean over the seeds, unrounded; null where no trial is done", METRIC_UNIT),
    "std": Column(_NUMBER, "the sample standard deviation over the seeds; null for fewer than two", METRIC_UNIT),
    "difference": Column(_NUMBER, "ours - paper, with `--against paper`", METRIC_UNIT),
    "standard_error": Column(_NUMBER, "Welch's standard error of the difference", METRIC_UNIT),
    "quoted": Column(_BOOL, "whether the number is the paper's and was not measured here"),
    "like_best": Column(
        _BOOL, "with `--marks`: whether it is marked as not distinguishable from the best; null: not tested"
    ),
    "text": Column(_TEXT, "the value as printed"),
}
"""Columns for a value and its statistics; in the wide form named NAME_mean, NAME_std, ..."""
COUNTS = ("n", "expected")
"""If each row of the wide form belongs to one cell, these are columns of the row."""

IS_OF = {
    **PAPER,
    **OF,
    "pair_weight": Column(_TEXT, "the pair weight of an objective of GOAL's matrix"),
    "triplet_weight": Column(_TEXT, "the triplet weight of an objective of GOAL's matrix"),
    "seed": PARTS["seed"],
    "metric": Column(_TEXT, "the metric: `i2t_r1` is Recall@1 of images that search texts"),
    "column": Column(_TEXT, "with `--against paper`: ours, paper or difference"),
    "reported_in": Column(_TEXT, "with `--against paper`: the table that prints the paper's number"),
}
"""Columns for the cell in the long form, followed by the swept settings by dotted name."""
SETTING = Column(_TEXT, "the value of a swept setting")

LONG = {
    **IS_OF,
    **VALUES,
    "trials": Column(pa.list_(_TEXT), "ids of the trials behind the mean, in the order of their seeds"),
    "missing": Column(_TEXT, "ids of the trials without a value, each with the reason; null where none is missing"),
    "note": Column(_TEXT, "with `--against paper`: what is wrong with the paper's number, or what other tables print"),
    "differs": DIFFERS,
    **PLACE,
    "heading": Column(_TEXT, "what is printed above the column, in one line"),
}
"""The columns of the long form, in order."""

ALWAYS = (
    *PLACE, "dataset", "protocol", "recipe", "objective", "metric", "n", "expected", "mean", "std", "quoted", "text",
    "trials", "missing", "heading",
)  # fmt: skip
"""Columns of the long form that every table has; the others exist only if some value has them."""

TABLES = {
    "settings": "the settings in which its cell differs from others of the data set, though no axis says so",
    "chosen": "the settings that validation chose for its cell",
    "validation": "the metric that chose: of the chosen point in the search, of the default, the gain over it, and of "
    "the trials with chosen values on fresh seeds",
}
"""Columns of the long form whose values are structs (mostly settings by dotted name), with their meanings."""
