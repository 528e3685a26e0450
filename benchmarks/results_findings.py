"""The findings at the head of docs/results.md, from the result files: what the default gains over other rows.

A sentence counts the differences that are beyond their 95 % intervals; the table under it has all of them. So the
findings cannot say more than the rows that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metaxc.research.bench import Record
from metaxc.research.bench.results import BEST

COLUMNS = (
    ("zero-shot P@1", "zero_shot", "P@1"),
    ("zero-shot R@10", "zero_shot", "R@10"),
    ("all items P@1", "generalized", "P@1"),
    ("all items R@10", "generalized", "R@10"),
    ("novel R@10", "novel", "R@10"),
    ("observed R@10", "observed", "R@10"),
)
"""Heading, setting and metric of what is compared; the last two are of the ranking of all items."""

DEFAULT = "metaxc"
PRACTICE = ("fine-tuned sentence-transformers", "fine-tuned sentence-transformers + BM25 (RRF)")
ORACLES = "oracle"


@dataclass(frozen=True)
class Comparison:
    """A finding: what the default gains over one row.

    Args:
        title: What the comparison shows.
        row: The row that the default is compared with.
        note: What a reader has to know; empty for nothing.
    """

    title: str
    row: str
    note: str = ""


COMPARISONS = (
    Comparison(
        "What the meta-classifiers add to the same encoder",
        "adapted encoder alone",
        "Classifiers, meta-classifiers, calibration, query expansion and, where clicks have times, freshness together.",
    ),
    Comparison("What a brief fine-tuning of the transformer brings", "metaxc --fine-tuning 0"),
    Comparison(
        "Against fine-tuned sentence-transformers, what one would build without metaxc",
        PRACTICE[0],
    ),
    Comparison(
        "Against the paper's own system",
        "IRENE as in the paper",
        "One-vs-all classifiers, a learned generator, an encoder trained by NGAME, all within minutes of two cores.",
    ),
)


def main_rows(records: Sequence[Record]) -> dict[str, dict[str, Record]]:
    """By data set, the latest record of each row of the main table, where the default is among them: without it nothing
    was compared with the present code."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        if record["table"] == "main":
            found.setdefault(record["data"], {})[record["row"]] = record
    return {data: rows for data, rows in sorted(found.items()) if DEFAULT in rows}


def gain(record: Record, setting: str, metric: str) -> tuple[float, float, float]:
    """What the default gains over a row, with the ends of its interval, in points."""
    one = record["versus_default"][setting][metric]
    # A row minus the default is stored; + 0.0 turns −0.0 into 0.0.
    return -one["difference"] + 0.0, -one["high"] + 0.0, -one["low"] + 0.0


def describe(comparison: Comparison, rows: dict[str, dict[str, Record]]) -> list[str]:
    """A finding as lines of Markdown; none where no data set has the row."""
    compared = {data: found[comparison.row] for data, found in rows.items() if comparison.row in found}
    compared = {data: record for data, record in compared.items() if record.get("versus_default")}
    if not compared:
        return []
    better, worse, table = 0, [], []
    for data, record in compared.items():
        for heading, setting, metric in COLUMNS:
            _, low, high = gain(record, setting, metric)
            better += low > 0
            worse += [f"{data} {heading}"] * (high < 0)
    table.append(f"| metaxc minus *{comparison.row}* | {' | '.join(heading for heading, _, _ in COLUMNS)} |")
    table.append("| --- " * (len(COLUMNS) + 1) + "|")
    for data, record in compared.items():
        cells = [_cell(*gain(record, setting, metric)) for _, setting, metric in COLUMNS]
        table.append(f"| {data} | {' | '.join(cells)} |")
    listed = f" ({', '.join(worse)})" if worse else ""
    words = (
        f"Of {len(compared) * len(COLUMNS)} differences {better} are gains beyond the interval and {len(worse)} "
        f"{'is a loss' if len(worse) == 1 else 'are losses'}{listed}; the others are within it."
    )
    return [" ".join(part for part in (comparison.note, words) if part), "", *table]


def describe_better_rows(rows: dict[str, dict[str, Record]]) -> str:
    """Which rows are better than the default beyond the interval, and in what; observed items alone are left out, for
    more of them are always found where fewer novel ones are."""
    found = []
    for data, records in rows.items():
        for name, record in records.items():
            if name == DEFAULT or name.startswith(ORACLES) or not record.get("versus_default"):
                continue
            gains = {heading: gain(record, setting, metric) for heading, setting, metric in COLUMNS[:-1]}
            better = [f"{heading} {-value:+.1f}" for heading, (value, _, high) in gains.items() if high < 0]
            if better:
                found.append(f"{data}: {name} ({', '.join(better)})")
    return "; ".join(found) + "." if found else "None, in none of these columns."


def describe_best(rows: dict[str, dict[str, Record]]) -> str:
    """In which columns the size best is below fine-tuned sentence-transformers, alone or with BM25: beyond the interval
    of the difference, and by how much at most within it."""
    compared, below, within = set(), [], 0.0
    for data, records in rows.items():
        for name in PRACTICE:
            versus = records.get(name, {}).get("versus_best")
            if BEST not in records or not versus:
                continue
            compared.add(data)
            for heading, setting, metric in COLUMNS:
                one = versus[setting][metric]
                if one["low"] > 0:
                    below.append(f"{data} {heading} (-{one['difference']:.1f} against {name})")
                else:
                    within = max(within, one["difference"])
    if not compared:
        return "Not measured."
    places = f"{len(compared)} data sets × {len(COLUMNS)} columns × {len(PRACTICE)} rows"
    found = (
        f"it is below beyond the interval in: {'; '.join(below)}"
        if below
        else "it is nowhere below beyond the interval"
    )
    return f"Of {places} {found}. Within the interval it is {within:.1f} points below at most."


def render_findings(records: Sequence[Record]) -> str:
    """The findings as Markdown."""
    rows = main_rows(records)
    if not rows:
        return "No findings: the default is not measured on the present code.\n"
    parts = [
        "**Findings.** Differences in points with the 95 % interval of a paired bootstrap over the test queries; "
        "bold where it excludes 0. One seed. *Novel* and *observed R@10* are of the ranking of all items.",
        "",
    ]
    number = 0
    for comparison in COMPARISONS:
        lines = describe(comparison, rows)
        if lines:
            number += 1
            parts += [f"**{number}. {comparison.title}.** {lines[0]}", *lines[1:], ""]
    parts += [
        f"**{number + 1}. Where something else is better.** Rows that are better than the default beyond the interval: "
        f"{describe_better_rows(rows)} `--size best` against fine-tuned sentence-transformers, alone or fused with "
        f"BM25: {describe_best(rows)}",
        "",
    ]
    return "\n".join(parts)


def _cell(value: float, low: float, high: float) -> str:
    text = f"{value:+.1f} ({low:.1f} to {high:.1f})"
    return f"**{text}**" if low > 0 or high < 0 else text
