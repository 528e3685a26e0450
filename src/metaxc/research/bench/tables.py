"""The benchmark's tables by name: running their rows, and printing result files as Markdown.

Rows that are finished are skipped; a failure is recorded and the other rows run. In Markdown, the best value of each
column is bold (oracles excluded), and "≈" marks a value inside the default model's 95 % interval. *Novel R@10 in the
mix* is the share of a query's novel relevant items among the first ten of all items, *H* its harmonic mean with the
same of observed items (`metaxc.evaluation.by_kind`). *Gap closed* is how far the default model gets from the bare
encoder to an oracle.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm

from metaxc import __version__
from metaxc.artifacts import json_digest
from metaxc.errors import ConfigError, MetaxcError
from metaxc.research.bench.ablation_table import ablation_table
from metaxc.research.bench.context import Context
from metaxc.research.bench.first_clicks_table import first_clicks_table
from metaxc.research.bench.latency_table import BATCHES, latency_table
from metaxc.research.bench.main_table import (
    BARE,
    ORACLE_ADAPTED,
    ORACLE_FROZEN,
    main_table,
    novel_ratio_table,
)
from metaxc.research.bench.results import Record, Results, find_metric, record_key
from metaxc.research.bench.rows import (
    ADAPTED,
    FROZEN,
    ORACLE,
    SIZES_GROUP,
    TERMS,
    Row,
    RowResult,
    Table,
    config_settings,
)

TABLES: dict[str, Callable[[], Table]] = {
    "main": main_table,
    "ablations": ablation_table,
    "oneshot": first_clicks_table,
    "novel-ratio": novel_ratio_table,
    "latency": latency_table,
}

COLUMNS: dict[str, tuple[str, ...]] = {
    "zero-shot P@1": ("zero_shot", "P@1"),
    "zero-shot R@10": ("zero_shot", "R@10"),
    "generalized P@1": ("generalized", "P@1"),
    "generalized R@10": ("generalized", "R@10"),
    "novel R@10 in the mix": ("generalized", "novel", "R@10"),
    "H": ("generalized", "H"),
}
"""Where each column's value is in the metrics of a record."""

LATENCY_COLUMNS: dict[str, tuple[str, ...]] = {
    f"{name} {measure}": (name, measure) for name in BATCHES for measure in ("ms", "times encoding")
}


def get_table(name: str) -> Table:
    """A table by its name."""
    if name not in TABLES:
        raise ConfigError("Unknown table", got=name, expected=", ".join(TABLES))
    return TABLES[name]()


def select_rows(table: Table, *patterns: str) -> list[Row]:
    """The rows whose name matches one of the glob patterns, ignoring case; all without a pattern."""
    rows = [
        row
        for row in table.rows
        if not patterns or any(fnmatch.fnmatchcase(row.name.lower(), pattern.lower()) for pattern in patterns)
    ]
    if not rows:
        names = ", ".join(repr(row.name) for row in table.rows)
        raise ConfigError(
            "No row matches",
            got=", ".join(patterns),
            expected=f"a pattern that matches some of {names}",
            fix=f"metaxc bench {table.name} --list",
        )
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
    """The records of `rows`, each run now or found in the result file.

    Args:
        context: What the rows share.
        table: The table that the rows belong to.
        rows: The rows to run.
        results: The result file.
        again: Runs rows again that are in the file; a row that failed is always run again.
        report: Called with one line per row.
    """
    records = []
    with tqdm(total=len(rows), desc=f"bench {table.name}", unit="row", disable=None) as bar:
        for row in rows:
            bar.set_postfix_str(row.name)
            head = _record_head(context, table, row)
            known = None if again else results.find(record_key(head))
            if known is not None and "failed" not in known:
                report(f"{row.name}: already in the result file")
                records.append(results.update_comparison(known, head["recipe"]))
            else:
                records.append(_run_row(context, row, head, results, report))
            bar.update()
    return records


def _run_row(
    context: Context, row: Row, head: Record, results: Results, report: Callable[[str], None]
) -> Record:
    started = time.perf_counter()
    try:
        result, failed = row.run(context), None
    except MetaxcError as error:
        result, failed = RowResult({}), str(error)
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
    report(f"{row.name}: {'failed: ' + failed if failed else _summarise(written)}")
    return written


def _record_head(context: Context, table: Table, row: Row) -> Record:
    return {
        "table": table.name,
        "row": row.name,
        "group": row.group,
        "data": context.dataset.name,
        "fingerprint": context.dataset.fingerprint,
        "recipe": json_digest(config_settings(context)),
        "config": {"digest": row.digest(context), "settings": row.settings(context)},
        **({"default": True} if row.default else {}),
        **({"other_split": True} if row.other_split else {}),
    }


def _summarise(record: Record) -> str:
    values = {name: find_metric(record["metrics"], path) for name, path in COLUMNS.items()}
    parts = [f"{name} {value:.1f}" for name, value in values.items() if value is not None]
    return ", ".join([*parts, f"{record['seconds']['row']:.1f} s"])


def latest_records(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """By data set and table: the latest record of each row, in the order of reading."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        found.setdefault((record["data"], record["table"]), {})[record["row"]] = record
    return {key: _sort_rows(key[1], rows) for key, rows in found.items()}


def render_markdown(records: Sequence[Record]) -> str:
    """All tables of all data sets, each under a heading."""
    parts = []
    tables = latest_records(records)
    for data in dict.fromkeys(key[0] for key in tables):
        parts.append(f"## {data}")
        for name in TABLES:
            rows = tables.get((data, name))
            if rows:
                parts += [f"### {name}", render_table(rows)]
    return "\n\n".join(parts) + "\n"


def shown_columns(rows: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """The columns that any of the rows has a value for: records of older versions do not have all."""
    return {
        name: path
        for name, path in COLUMNS.items()
        if any(find_metric(row["metrics"], path) is not None for row in rows)
    }


def render_table(rows: Sequence[Record]) -> str:
    """One table of one data set, followed by the share of the gap closed and the reasons of failed rows."""
    if rows[0]["table"] == "latency":
        heads = [head for name in BATCHES for head in (f"{name}: ms per text", "× encoding")]
        body = [[row["row"], *_latency_cells(row)] for row in rows]
        closed = ""
    else:
        columns = shown_columns(rows)
        heads = list(columns)
        default = next((row for row in rows if row.get("default") and "failed" not in row), None)
        body = [[row["row"], *(_cell(row, path, rows, default) for path in columns.values())] for row in rows]
        closed = _describe_gap(gap_closed(rows))
    lines = [["", *heads], ["---"] * (len(heads) + 1), *body]
    failures = [
        f"{row['row']}: not measured ({' '.join(str(row['failed']).split())})"
        for row in rows
        if "failed" in row
    ]
    parts = ["\n".join(f"| {' | '.join(cells)} |" for cells in lines), closed, *failures]
    return "\n\n".join(part for part in parts if part)


def gap_closed(rows: Sequence[Record], setting: str = "zero_shot", metric: str = "R@10") -> dict[str, float]:
    """How far the default model gets from the bare encoder to each oracle, percent; an oracle that is missing, or no
    better than the bare encoder, is left out."""
    values = {row["row"]: row["metrics"].get(setting, {}).get(metric) for row in rows}
    default = next((values[row["row"]] for row in rows if row.get("default")), None)
    bare = values.get(BARE)
    if default is None or bare is None:
        return {}
    oracles = {name: values.get(name) for name in (ORACLE_ADAPTED, ORACLE_FROZEN)}
    return {
        name: 100 * (default - bare) / (oracle - bare)
        for name, oracle in oracles.items()
        if oracle is not None and oracle > bare
    }


def _describe_gap(closed: Mapping[str, float]) -> str:
    if not closed:
        return ""
    parts = ", ".join(f"{share:.0f} % of the way to the {name}" for name, share in closed.items())
    return f"Gap closed, zero-shot R@10: from the bare encoder {parts}."


def _cell(row: Record, path: Sequence[str], rows: Sequence[Record], default: Record | None) -> str:
    value = find_metric(row["metrics"], path)
    if value is None:
        return "–"
    text = f"{value:.1f}"
    others = [
        find_metric(other["metrics"], path)
        for other in rows
        if other["group"] != ORACLE and (row["table"] != "novel-ratio" or other["group"] == row["group"])
    ]
    best = max((other for other in others if other is not None), default=None)
    if row["group"] != ORACLE and best is not None and text == f"{best:.1f}":
        text = f"**{text}**"
    if default is not None and row is not default:
        low, high = find_metric(default["intervals"], path) or (1.0, 0.0)
        text += " ≈" if low <= value <= high else ""
    return text


def _latency_cells(row: Record) -> list[str]:
    values = [find_metric(row["metrics"], path) for path in LATENCY_COLUMNS.values()]
    return ["–" if value is None else f"{value:.3g}" for value in values]


def _sort_rows(table: str, rows: Mapping[str, Record]) -> list[Record]:
    known = [row.name for row in TABLES[table]().rows] if table in TABLES else []
    names = [name for name in known if name in rows] + [name for name in rows if name not in known]
    ordered = [rows[name] for name in names]
    if table != "main":
        return ordered
    # The default model runs first, so that other rows can be compared with it, and is printed last in its group.
    places = {group: place for place, group in enumerate((TERMS, FROZEN, SIZES_GROUP, ADAPTED, ORACLE))}
    return sorted(ordered, key=lambda row: (places.get(row["group"], -1), bool(row.get("default"))))
