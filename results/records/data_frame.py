"""The records of a grid as a pandas DataFrame: a row a trial, a column for every setting and every metric."""

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.results.records.record_cache import COLUMNS

_SETTINGS = ["recipe", "seed", "starts_from", "schema_version"]
"""Settings that stand in columns of the record already, or say nothing about the trial."""


def data_frame(home: Home, ids: Sequence[str], unreadable: record.Unreadable | None = None) -> pd.DataFrame:
    """The records of these trials, by their ids: columns of the record, then the settings by dotted name.

    A setting that a trial does not have, such as a parameter of another objective, is missing in its row. Metrics
    by other protocols of the data set stand in columns `PROTOCOL/METRIC`. Ranks and history are left out.

    Args:
        unreadable: takes the records that cannot be read, which are left out; None: they are an error.

    Raises:
        UserError: a record cannot be read.
    """
    paths = [home.trial(trial_id).record for trial_id in ids]
    table = record.collect(paths, [*COLUMNS, "settings"], unreadable)
    frame = table.drop_columns(["settings", "other_metrics"]).to_pandas()
    settings = [json.loads(text) for text in table["settings"].to_pylist()]
    others: list[Mapping[str, float]] = [dict(pairs or ()) for pairs in table["other_metrics"].to_pylist()]
    named = pd.json_normalize(settings).drop(columns=_SETTINGS, errors="ignore")
    named.columns = [name.replace("objective.parameters.", "objective.") for name in named.columns]
    return pd.concat([frame, named, pd.DataFrame(others)], axis=1).set_index("trial_id")
