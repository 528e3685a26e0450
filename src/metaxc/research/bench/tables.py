"""The benchmark's tables by name, and result files as Markdown.

In Markdown, the best value of each column is bold (oracles excluded), and "≈" marks a value inside the default model's
95 % interval. *Novel R@10 in the mix* is the share of a query's novel relevant items among the first ten of all items,
and *observed* alike; *H* is their harmonic mean (`metaxc.evaluation.by_kind`). *Gap closed* is how far the default
model gets from the bare encoder to an oracle.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from metaxc.errors import ConfigError
from metaxc.research.bench.ablation_table import ablation_table
from metaxc.research.bench.encoder_table import encoder_table
from metaxc.research.bench.first_clicks_table import first_clicks_table
from metaxc.research.bench.latency_table import BATCHES, latency_table
from metaxc.research.bench.main_table import (
    BARE,
    ORACLE_ADAPTED,
    ORACLE_FROZEN,
    main_table,
    novel_ratio_table,
)
from metaxc.research.bench.results import Record, find_metric
from metaxc.research.bench.rows import (
    ADAPTED,
    FINE_TUNED,
    FROZEN,
    ORACLE,
    SIZES_GROUP,
    TERMS,
    Row,
    Table,
)
from metaxc.research.code_version import source_digest

TABLES: dict[str, Callable[[], Table]] = {
    "main": main_table,
    "encoders": encoder_table,
    "ablations": ablation_table,
    "oneshot": first_clicks_table,
    "novel-ratio": novel_ratio_table,
    "latency": latency_table,
}

PAPER_METRICS = (
    *(f"P@{k}" for k in (1, 3, 5, 30, 50, 100)),
    *(f"R@{k}" for k in (3, 10, 30, 50, 100)),
)

COLUMNS: dict[str, tuple[str, ...]] = {
    "zero-shot P@1": ("zero_shot", "P@1"),
    "zero-shot R@10": ("zero_shot", "R@10"),
    "generalized P@1": ("generalized", "P@1"),
    "generalized R@10": ("generalized", "R@10"),
    "novel R@10 in the mix": ("generalized", "novel", "R@10"),
    "observed R@10 in the mix": ("generalized", "observed", "R@10"),
    "H": ("generalized", "H"),
}
"""Where each column's value is in the metrics of a record."""

DEPTH_COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    setting: {metric: (key, metric) for metric in PAPER_METRICS}
    for setting, key in (("zero-shot", "zero_shot"), ("generalized", "generalized"))
}
"""Of the main table, by setting: all depths of the paper's tables."""

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


def summarise(record: Record) -> str:
    """The columns of a record and its time in one line."""
    values = {name: find_metric(record["metrics"], path) for name, path in COLUMNS.items()}
    parts = [f"{name} {value:.1f}" for name, value in values.items() if value is not None]
    return ", ".join([*parts, f"{record['seconds']['row']:.1f} s"])


def split_by_code(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The records that the present code has measured, and the latest records of all other rows: those of other code, of
    code that they do not name, and of rows that no table has any more."""
    present = {
        (table, row.name): source_digest(row.sources)
        for table, build in TABLES.items()
        for row in build().rows
    }
    current = [
        record
        for record in records
        if record.get("source_digest", "") == present.get((record["table"], record["row"]))
    ]
    known = {_place(record) for record in current}
    others = {_place(record): record for record in records if _place(record) not in known}
    return current, list(others.values())


def _place(record: Record) -> tuple[str, str, str]:
    return record["data"], record["table"], record["row"]


def latest_records(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """By data set and table: the latest record of each row, in the order of reading."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        found.setdefault((record["data"], record["table"]), {})[record["row"]] = record
    return {key: _sort_rows(key[1], rows) for key, rows in found.items()}


def render_markdown(records: Sequence[Record]) -> str:
    """All tables of all data sets, each under a heading; first, where there are several, their means."""
    parts = []
    tables = latest_records(records)
    main = [rows for (_, name), rows in tables.items() if name == "main"]
    if len(main) > 1:
        parts += [f"## Means over {len(main)} data sets", render_means(main)]
    for data in dict.fromkeys(key[0] for key in tables):
        parts.append(f"## {data}")
        for name in TABLES:
            rows = tables.get((data, name))
            if rows:
                parts += [f"### {name}", render_table(rows)]
    return "\n\n".join(parts) + "\n"


def render_means(tables: Sequence[Sequence[Record]]) -> str:
    """One table: the mean over several data sets of each row that all of them have, such as the main tables'."""
    measured = [{row["row"]: row for row in rows if "failed" not in row} for rows in tables]
    names = [row["row"] for row in tables[0] if all(row["row"] in found for found in measured)]
    body = []
    for name in names:
        values = [
            [find_metric(found[name]["metrics"], path) for found in measured] for path in COLUMNS.values()
        ]
        body.append([name, *("–" if None in one else f"{sum(one) / len(one):.1f}" for one in values)])
    return _render_lines(list(COLUMNS), body)


def render_depths(records: Sequence[Record]) -> str:
    """The main tables of all data sets with all depths of the paper's tables."""
    parts = []
    for (data, name), rows in latest_records(records).items():
        if name == "main":
            parts.append(f"## {data}")
            for setting, columns in DEPTH_COLUMNS.items():
                if shown := shown_columns(rows, columns):
                    parts += [f"### {setting}", _render_columns(rows, shown)]
    return "\n\n".join(parts) + "\n"


def shown_columns(
    rows: Sequence[Record], columns: Mapping[str, tuple[str, ...]] = COLUMNS
) -> dict[str, tuple[str, ...]]:
    """The columns that any of the rows has a value for."""
    return {
        name: path
        for name, path in columns.items()
        if any(find_metric(row["metrics"], path) is not None for row in rows)
    }


def render_table(rows: Sequence[Record]) -> str:
    """One table of one data set, followed by the share of the gap closed, the rows' notes and the reasons of failed
    rows."""
    if rows[0]["table"] == "latency":
        heads = [head for name in BATCHES for head in (f"{name}: ms per text", "× encoding")]
        parts = [_render_lines(heads, [[row["row"], *_latency_cells(row)] for row in rows])]
    else:
        parts = [_render_columns(rows, shown_columns(rows)), _describe_gap(gap_closed(rows))]
    failures = [
        f"{row['row']}: not measured ({' '.join(str(row['failed']).split())})"
        for row in rows
        if "failed" in row
    ]
    return "\n\n".join(part for part in (*parts, _describe_notes(rows), *failures) if part)


NAMED_ROWS = 3
"""Rows of a note that are named; the others are counted."""


def _describe_notes(rows: Sequence[Record]) -> str:
    """What a reader of the rows must know, each note once with the rows that it is about."""
    about: dict[str, list[str]] = {}
    for row in rows:
        if row.get("note") and "failed" not in row:
            about.setdefault(row["note"], []).append(row["row"])
    lines = []
    for note, names in about.items():
        more = len(names) - NAMED_ROWS
        listed = ", ".join(names[:NAMED_ROWS]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"- {listed}: {note}")
    return "\n".join(lines)


def _render_columns(rows: Sequence[Record], columns: Mapping[str, Sequence[str]]) -> str:
    default = next((row for row in rows if row.get("default") and "failed" not in row), None)
    body = [[row["row"], *(_cell(row, path, rows, default) for path in columns.values())] for row in rows]
    return _render_lines(list(columns), body)


def _render_lines(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [["", *heads], ["---"] * (len(heads) + 1), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


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
    places = {
        group: place for place, group in enumerate((TERMS, FROZEN, FINE_TUNED, SIZES_GROUP, ADAPTED, ORACLE))
    }
    return sorted(ordered, key=lambda row: (places.get(row["group"], -1), bool(row.get("default"))))
