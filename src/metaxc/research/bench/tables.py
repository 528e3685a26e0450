"""Result files as Markdown tables: nothing is measured here.

The best of each column among the rows that do not see hidden clicks is bold; "≈" marks a value inside the default
model's 95 % interval. *Gap closed* is how far the default model gets from the bare encoder to an oracle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaxc.research.bench.latency_table import BATCHES
from metaxc.research.bench.main_table import BARE, ORACLE_ADAPTED, ORACLE_FROZEN
from metaxc.research.bench.makers import ADAPTED, FROZEN, ORACLE, SIZED, TERMS
from metaxc.research.bench.results import Record
from metaxc.research.bench.run import TABLES

COLUMNS = [(setting, metric) for setting in ("zero_shot", "generalized") for metric in ("P@1", "R@10")]
NAMES = {"zero_shot": "zero-shot", "generalized": "generalized"}
OF_LATENCY = [(name, measure) for name in BATCHES for measure in ("ms", "times encoding")]


def newest(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Records by data set and table, the newest of each row, in the order in which they are read."""
    found: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        found.setdefault((record["data"], record["table"]), {})[record["row"]] = record
    return {place: _ordered(place[1], rows) for place, rows in found.items()}


def markdown(records: Sequence[Record]) -> str:
    """All tables of all data sets, each under a heading."""
    parts = []
    tables = newest(records)
    for data in dict.fromkeys(place[0] for place in tables):
        parts.append(f"## {data}")
        for name in TABLES:
            rows = tables.get((data, name))
            if rows:
                parts += [f"### {name}", table_markdown(rows)]
    return "\n\n".join(parts) + "\n"


def table_markdown(rows: Sequence[Record]) -> str:
    """One table of one data set, with the share of the gap closed and the reasons of failed rows below."""
    if rows[0]["table"] == "latency":
        return _latency(rows)
    heads = [f"{NAMES[setting]} {metric}" for setting, metric in COLUMNS]
    lines = [_line(["", *heads]), _line(["---"] * (len(heads) + 1))]
    default = next((row for row in rows if row.get("default") and "failed" not in row), None)
    for row in rows:
        rivals = [r for r in rows if row["table"] != "novel-ratio" or r["group"] == row["group"]]
        cells = [_cell(row, setting, metric, rivals, default) for setting, metric in COLUMNS]
        lines.append(_line([row["row"], *cells]))
    below = [_gap_words(gap_closed(rows)), *_failures(rows)]
    return "\n\n".join(["\n".join(lines), *(line for line in below if line)])


def gap_closed(rows: Sequence[Record], setting: str = "zero_shot", metric: str = "R@10") -> dict[str, float]:
    """Percent of the way from the bare encoder to each oracle that the default model goes; an oracle that is
    missing, or no better than the bare encoder, is left out."""
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


def _gap_words(closed: Mapping[str, float]) -> str:
    if not closed:
        return ""
    parts = ", ".join(f"{share:.0f} % of the way to the {name}" for name, share in closed.items())
    return f"Gap closed, zero-shot R@10: from the bare encoder {parts}."


def _cell(row: Record, setting: str, metric: str, rivals: Sequence[Record], default: Record | None) -> str:
    value = row["metrics"].get(setting, {}).get(metric)
    if value is None:
        return "–"
    text = f"{value:.1f}"
    others = [r["metrics"].get(setting, {}).get(metric) for r in rivals if r["group"] != ORACLE]
    best = max((other for other in others if other is not None), default=None)
    if row["group"] != ORACLE and best is not None and text == f"{best:.1f}":
        text = f"**{text}**"
    if default is not None and row is not default:
        low, high = default["intervals"].get(setting, {}).get(metric, (1.0, 0.0))
        text += " ≈" if low <= value <= high else ""
    return text


def _latency(rows: Sequence[Record]) -> str:
    heads = [head for name in BATCHES for head in (f"{name}: ms per text", "× encoding")]
    lines = [_line(["", *heads]), _line(["---"] * (len(heads) + 1))]
    for row in rows:
        values = [row["metrics"].get(name, {}).get(measure) for name, measure in OF_LATENCY]
        lines.append(_line([row["row"], *("–" if value is None else f"{value:.3g}" for value in values)]))
    return "\n\n".join(["\n".join(lines), *_failures(rows)])


def _failures(rows: Sequence[Record]) -> list[str]:
    return [
        f"{row['row']}: not measured ({' '.join(str(row['failed']).split())})"
        for row in rows
        if "failed" in row
    ]


def _ordered(table: str, rows: Mapping[str, Record]) -> list[Record]:
    known = [row.name for row in TABLES[table]().rows] if table in TABLES else []
    names = [name for name in known if name in rows] + [name for name in rows if name not in known]
    ordered = [rows[name] for name in names]
    if table != "main":
        return ordered
    # It was run first so that the others could be compared with it; a reader comes to it last.
    places = {group: place for place, group in enumerate((TERMS, FROZEN, SIZED, ADAPTED, ORACLE))}
    return sorted(ordered, key=lambda row: (places.get(row["group"], -1), bool(row.get("default"))))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
