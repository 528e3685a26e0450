"""Two systems compared on the same queries, by setting and by kind of item.

The values that are compared are plain arrays by setting and metric, so that they can also come from a file
(`metaxc.research.bench.results`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.evaluation.by_kind import KIND_METRICS
from metaxc.evaluation.intervals import PairedDifference, paired_interval
from metaxc.evaluation.protocol import Evaluation

PairedValues = Mapping[str, Mapping[str, NDArray[Any]]]
"""(queries,) by "zero_shot", "generalized", "novel" or "observed" (items of that kind in the generalized ranking), then
by metric, with "queries", the rows of the queries in the test log."""

PAIRED_METRICS = KIND_METRICS
"""Metrics that are compared in every setting."""


def paired_values(evaluation: Evaluation) -> PairedValues:
    """The values of an evaluation that can be compared with those of another one."""
    per_query, queries = dict(evaluation.per_query), dict(evaluation.queries)
    if evaluation.by_kind is not None:
        asked = {kind: rows for kind, rows in evaluation.by_kind.queries.items() if len(rows)}
        per_query |= {kind: evaluation.by_kind.per_query[kind] for kind in asked}
        queries |= asked
    return {
        setting: {**{name: values[name] for name in PAIRED_METRICS}, "queries": queries[setting]}
        for setting, values in per_query.items()
    }


def paired_intervals(own: PairedValues, other: PairedValues) -> dict[str, dict[str, PairedDifference]]:
    """own − other by setting and metric; settings whose queries differ are left out.

    Args:
        own, other: From `paired_values`.
    """
    return {
        setting: {name: paired_interval(values[name], other[setting][name]) for name in PAIRED_METRICS}
        for setting, values in own.items()
        if setting in other and np.array_equal(values["queries"], other[setting]["queries"])
    }
