"""Running a table: row by row, what is done is skipped, what fails is recorded and the rest goes on."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tqdm import tqdm

from metaxc import __version__
from metaxc.artifacts import json_digest
from metaxc.errors import ConfigError, MetaxcError
from metaxc.research.bench.ablations import ablations_table
from metaxc.research.bench.context import Context
from metaxc.research.bench.latency_table import latency_table
from metaxc.research.bench.main_table import main_table
from metaxc.research.bench.makers import recipe_of
from metaxc.research.bench.oneshot import oneshot_table
from metaxc.research.bench.ratio import ratio_table
from metaxc.research.bench.results import Record, Results, key_of
from metaxc.research.bench.rows import Outcome, Row, Table

TABLES: dict[str, Callable[[], Table]] = {
    "main": main_table,
    "ablations": ablations_table,
    "oneshot": oneshot_table,
    "novel-ratio": ratio_table,
    "latency": latency_table,
}


def table_of(name: str) -> Table:
    """A table by its name."""
    if name not in TABLES:
        raise ConfigError("Unknown table", got=name, expected=", ".join(TABLES))
    return TABLES[name]()


def chosen_rows(table: Table, *patterns: str) -> list[Row]:
    """The rows whose name fits one of the glob patterns, whatever the case; all without a pattern. None is an error."""
    rows = [
        row
        for row in table.rows
        if not patterns or any(fnmatch.fnmatchcase(row.name.lower(), one.lower()) for one in patterns)
    ]
    if not rows:
        names = ", ".join(repr(row.name) for row in table.rows)
        raise ConfigError("No row fits", got=", ".join(patterns), expected=f"a pattern for some of {names}")
    return rows


def run_table(
    context: Context,
    table: Table,
    rows: Sequence[Row],
    results: Results,
    *,
    again: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """The records of `rows`, each done now or found in the result file.

    A row that failed earlier is tried again. `again` does all of them anew.
    """
    found = []
    with tqdm(total=len(rows), desc=f"bench {table.name}", unit="row", disable=None) as bar:
        for row in rows:
            bar.set_postfix_str(row.name)
            head = _head(context, table, row)
            known = None if again else results.find(key_of(head))
            if known is not None and "failed" not in known:
                report(f"{row.name}: already there")
                found.append(results.refreshed(known, head["recipe"]))
            else:
                found.append(_do(context, row, head, results, report))
            bar.update()
    return found


def _do(context: Context, row: Row, head: Record, results: Results, report: Callable[[str], None]) -> Record:
    started = time.perf_counter()
    try:
        outcome, failed = row.run(context), None
    except MetaxcError as error:
        outcome, failed = Outcome({}), str(error)
    record: dict[str, Any] = {
        **head,
        "metrics": {name: dict(values) for name, values in outcome.metrics.items()},
        "intervals": {
            setting: {name: [low, high] for name, (low, high) in ranges.items()}
            for setting, ranges in outcome.intervals.items()
        },
        "counts": {setting: dict(counts) for setting, counts in outcome.counts.items()},
        "seconds": {**outcome.seconds, "row": time.perf_counter() - started},
        "threads": torch.get_num_threads(),
        "version": __version__,
        "note": outcome.note,
        **({"failed": failed} if failed else {}),
    }
    written = results.append(record, outcome.per_query)
    report(f"{row.name}: {'failed: ' + failed if failed else _words(written)}")
    return written


def _head(context: Context, table: Table, row: Row) -> Record:
    return {
        "table": table.name,
        "row": row.name,
        "group": row.group,
        "data": context.dataset.name,
        "fingerprint": context.dataset.fingerprint,
        "recipe": json_digest(recipe_of(context)),
        "config": {"digest": row.digest(context), "settings": row.settings(context)},
        **({"default": True} if row.default else {}),
        **({"other_split": True} if row.other_split else {}),
    }


def _words(record: Record) -> str:
    parts = [
        f"{setting.replace('_', '-')} P@1 {values['P@1']:.1f} R@10 {values['R@10']:.1f}"
        for setting, values in record["metrics"].items()
        if "P@1" in values
    ]
    return ", ".join([*parts, f"{record['seconds']['row']:.1f} s"])
