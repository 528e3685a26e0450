"""What a benchmark is made of: tables of named rows, each a function from the context to an outcome.

A row states what decides its outcome beside the data (`settings`), so that a row that was done need not be done
again, and one whose settings changed is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from metaxc.artifacts import json_digest
from metaxc.evaluation.protocol import Evaluation
from metaxc.research.bench.context import Context

Settings = dict[str, Any]

KEPT = ("P@1", "R@10")
"""Metrics whose per-query values are kept, for paired tests."""


@dataclass(frozen=True)
class Outcome:
    """What a row found.

    Args:
        metrics: By setting ("zero_shot", "generalized") and metric, percent; other measures by their own names.
        intervals: (low, high) of the 95 % intervals, by setting and metric.
        counts: "queries" judged and "items" ranked, by setting.
        seconds: Wall-clock time by what took it.
        per_query: (queries,) by setting and metric (`KEPT`), with "queries", the rows in the test log.
        note: What a reader of the number must know.
    """

    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    per_query: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict, repr=False)
    note: str = ""

    @classmethod
    def of(cls, found: Evaluation, fit: float = 0.0, note: str = "") -> Outcome:
        """An evaluation as an outcome.

        Args:
            found: The evaluation.
            fit: Seconds that came before it.
            note: As above.
        """
        per_query = {
            setting: {**{name: values[name] for name in KEPT}, "queries": found.queries[setting]}
            for setting, values in found.per_query.items()
        }
        seconds = {"fit": fit, "search": sum(found.seconds.values())}
        return cls(found.metrics, found.intervals, found.counts, seconds, per_query, note)


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        name: Unique in its table.
        group: What it is shown under.
        run: Does the work.
        settings: All that decides the outcome beside the data set; JSON-able.
        default: Whether this is the model that the others are compared with.
        other_split: Whether it has novel items of its own, so that comparing it with the default means nothing.
    """

    name: str
    group: str
    run: Callable[[Context], Outcome]
    settings: Callable[[Context], Settings]
    default: bool = False
    other_split: bool = False

    def digest(self, context: Context) -> str:
        """Names the settings: same digest, same outcome on the same data."""
        return json_digest(self.settings(context))


@dataclass(frozen=True)
class Table:
    """Rows that belong together, in the order in which they are run; the default model first, where there is
    one, so that the others can be compared with it at once.

    Args:
        name: What the command calls it.
        about: What it shows, one sentence.
        rows: The rows.
    """

    name: str
    about: str
    rows: Sequence[Row]
