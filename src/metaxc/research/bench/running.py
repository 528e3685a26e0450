"""Running the rows of one table, or of all tables, cheapest first.

A row that is in the result file is skipped if the present code measured it; one of other code is run again. A failure
of any kind is recorded with its reason, and the other rows run.
"""

from __future__ import annotations

import shlex
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tqdm import tqdm

from metaxc import __version__
from metaxc.artifacts import json_digest
from metaxc.errors import MetaxcError
from metaxc.research.bench.context import Context
from metaxc.research.bench.results import Record, Results, record_key
from metaxc.research.bench.rows import Row, RowResult, Table, config_settings
from metaxc.research.bench.tables import summarise
from metaxc.research.code_version import running_commit, source_digest

Report = Callable[[str], None]


Rerun = Literal["older", "all", "none"]
"""Which finished rows of the result file are run again: those that other code has measured, all, or none. A row that
failed always is."""


@dataclass(frozen=True)
class Step:
    """A row of a plan.

    Args:
        table: The table of the row.
        row: The row.
        cost: What it costs at its place in the plan: its own cost, and that of models which no earlier row trained.
    """

    table: Table
    row: Row
    cost: float


def run_table(
    context: Context,
    table: Table,
    rows: Sequence[Row],
    results: Results,
    *,
    rerun: Rerun = "older",
    report: Report = lambda line: None,
) -> list[Record]:
    """The records of `rows`, each run now or found in the result file.

    Args:
        context: What the rows share.
        table: The table that the rows belong to.
        rows: The rows to run.
        results: The result file.
        rerun: Which rows of the file are run again.
        report: Called with one line per row.
    """
    records = []
    with tqdm(total=len(rows), desc=f"bench {table.name}", unit="row", disable=None) as bar:
        for row in rows:
            bar.set_postfix_str(row.name)
            records.append(run_row(context, table, row, results, rerun, report)[0])
            bar.update()
    return records


def plan_rows(tables: Sequence[Table]) -> list[Step]:
    """The rows of the tables, table by table, the cheapest of each table first; a model that several rows use counts
    for the first of them."""
    steps: list[Step] = []
    trained: set[str] = set()
    for table in tables:
        waiting = list(table.rows)
        while waiting:
            costs = [
                row.cost + sum(one.cost for one in row.uses if one.name not in trained) for row in waiting
            ]
            place = costs.index(min(costs))
            row = waiting.pop(place)
            steps.append(Step(table, row, costs[place]))
            trained |= {one.name for one in row.uses}
    return steps


def run_all(
    context: Context,
    tables: Sequence[Table],
    results: Results,
    *,
    rerun: Rerun = "older",
    report: Report = lambda line: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Record]:
    """The records of all rows of the tables, in the order of `plan_rows`.

    Args:
        context: What the rows share.
        tables: The tables, in the order of running.
        results: The result file.
        rerun: Which rows of the file are run again.
        report: Called with two lines per row: the time before it is run, and its result.
        clock: Seconds.
    """
    steps = plan_rows(tables)
    records = []
    started, run_cost, run_seconds = clock(), 0.0, 0.0
    for number, step in enumerate(steps):
        before = clock()
        left = _estimate_left(sum(one.cost for one in steps[number:]), run_cost, run_seconds)
        report(
            f"[{number + 1}/{len(steps)}] {step.table.name}, {step.row.name}: {_minutes(before - started)}, {left}"
        )
        record, is_new = run_row(context, step.table, step.row, results, rerun, report)
        records.append(record)
        if is_new:  # one that was in the file says nothing about the time of the others
            run_cost, run_seconds = run_cost + step.cost, run_seconds + clock() - before
    return [_compare_again(context, s.row, r, results) for s, r in zip(steps, records, strict=True)]


def run_row(
    context: Context, table: Table, row: Row, results: Results, rerun: Rerun, report: Report
) -> tuple[Record, bool]:
    """The record of a row, and whether it was run now or found in the result file."""
    started = time.perf_counter()
    try:
        head = _record_head(context, table, row)
    except Exception as error:  # the settings name encoders, which may be missing
        head = _record_head(context, table, row, settings={"unknown": row.name})
        return _write(head, RowResult({}), _reason(error), started, results, report), True
    known = None if rerun == "all" else results.find(record_key(head))
    if known is not None and "failed" not in known:
        if known.get("source_digest") == head["source_digest"]:
            report(f"{row.name}: already in the result file")
            return results.update_comparison(known, head["recipe"]), False
        if rerun == "none":
            report(f"{row.name}: already in the result file, measured with other code")
            return known, False
        report(f"{row.name}: the result file has it from other code; it is run again")
    try:
        result, failed = row.run(context), None
    except Exception as error:  # whatever it was, the other rows run
        result, failed = RowResult({}), _reason(error)
    return _write(head, result, failed, started, results, report), True


def _write(
    head: Record, result: RowResult, failed: str | None, started: float, results: Results, report: Report
) -> Record:
    record: dict[str, Any] = {
        **head,
        "metrics": {name: dict(values) for name, values in result.metrics.items()},
        "intervals": {setting: dict(ranges) for setting, ranges in result.intervals.items()},
        "counts": {setting: dict(counts) for setting, counts in result.counts.items()},
        "seconds": {**result.seconds, "row": time.perf_counter() - started},
        "threads": torch.get_num_threads(),
        "version": __version__,
        "note": result.note,
        **({"failed": failed} if failed else {}),
    }
    written = results.append(record, result.per_query)
    report(f"{head['row']}: {'failed: ' + failed if failed else summarise(written)}")
    return written


def _record_head(context: Context, table: Table, row: Row, settings: dict[str, Any] | None = None) -> Record:
    """What is known of a row before it is run.

    Args:
        context, table, row: Which row, on which data.
        settings: In place of the row's own.
    """
    settings = row.settings(context) if settings is None else settings
    arguments = context.arguments
    command = f"metaxc bench {table.name} {arguments} --rows {shlex.quote(row.name)}"
    return {
        "table": table.name,
        "row": row.name,
        "group": row.group,
        "data": context.dataset.name,
        "fingerprint": context.dataset.fingerprint,
        "seed": context.config.seed,
        "command": None if arguments is None else command,
        "commit": running_commit(),
        "source_digest": source_digest(row.sources),
        "recipe": json_digest(config_settings(context)),
        "config": {"digest": json_digest(settings), "settings": settings},
        **({"default": True} if row.default else {}),
        **({"other_split": True} if row.other_split else {}),
    }


def _compare_again(context: Context, row: Row, record: Record, results: Results) -> Record:
    """The record, compared with a default model that was run after it; not one of other code."""
    if "failed" in record or row.default or record.get("source_digest") != source_digest(row.sources):
        return record
    return results.update_comparison(record, json_digest(config_settings(context)))


def _reason(error: Exception) -> str:
    if isinstance(error, MetaxcError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename.replace(chr(92), '/').rsplit('/', 1)[-1]}, line {last.lineno}"
    return f"{type(error).__name__}: {error} ({place})"


def _estimate_left(cost: float, run_cost: float, run_seconds: float) -> str:
    if not run_cost:
        return "time left unknown"
    return f"about {cost * run_seconds / run_cost / 60:.1f} min left"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min elapsed"
