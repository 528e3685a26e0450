"""Builds docs/results.md from the result files of `metaxc bench`, which contain every number on the page.

    python benchmarks/results_page.py

Reads benchmarks/results/bench/*.jsonl and replaces the text between the marker comments, findings above and tables
below; the rest of the page is written by hand and stays. The main tables with all depths go to a page of their own,
beside it, with `-depths` in its name. Rows that other code has measured, or that do not name their code, are left out
and counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from results_findings import render_findings

from metaxc.errors import DataError
from metaxc.research.bench import Record, read_records
from metaxc.research.bench.tables import render_depths, render_markdown, split_by_code

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
FINDINGS_BEGIN, FINDINGS_END = "<!-- findings: begin -->", "<!-- findings: end -->"

START = f"""# Results

{FINDINGS_BEGIN}
{FINDINGS_END}

`metaxc bench all` writes one result file per data set to `benchmarks/results/bench`; `benchmarks/results_page.py`
builds this page from them and shows the rows of the present code only. All values are percent. *Zero-shot* ranks the
novel items, *generalized* all items; *novel R@10 in the mix*, *observed* alike and *H* are explained in
[metrics.md](metrics.md). Bold: best of the column, oracles excluded. ≈: inside the 95 % interval of metaxc with default
settings.

{BEGIN}
{END}
"""

DEPTHS = """# Results at all depths

The main tables of [results.md](results.md), which says what they are, with all depths of the paper's tables. Percent.
`benchmarks/results_page.py` writes this page.

"""

PAPER = {
    "LF-AOL-270K-10": ((30.90, 54.20, 20.16, 38.27), (36.47, 59.57, 35.11, 52.30)),
    "LF-WikiHierarchy-550K-10": ((46.01, 58.66, 66.19, 27.08), (69.29, 80.40, 91.33, 40.09)),
    "LF-AmazonTitles-1.3M-10": ((30.42, 36.44, 45.14, 30.25), (31.56, 38.83, 47.77, 31.49)),
    "LF-Wikipedia-500K-10": ((46.96, 65.27, 81.86, 69.58), (44.91, 67.79, 78.99, 69.27)),
}
"""NGAME, and NGAME + IRENE, in the paper's main table: zero-shot P@1, R@10, generalized P@1, R@10."""


def describe_left_out(others: Sequence[Record]) -> str:
    """How many rows of which data sets are not on the page; empty where all are."""
    if not others:
        return ""
    counts = Counter(record["data"] for record in others)
    each = ", ".join(f"{count} of {data}" for data, count in sorted(counts.items()))
    return (
        "Rows that were measured with other code than the present one, or that do not name their code, are left out: "
        f"{len(others)} in all, {each}. `metaxc bench all` measures them again.\n"
    )


def paper_gains() -> str:
    """The paper's results on its own data sets, for orientation."""
    lines = [
        "## The paper's own gains, for orientation",
        "",
        "NGAME → NGAME + IRENE as printed in the paper's main table: other data sets, other encoder, other scale.",
        "",
        "| data set | zero-shot P@1 | zero-shot R@10 | generalized P@1 | generalized R@10 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (before, after) in PAPER.items():
        cells = [f"{a:.1f} → {b:.1f} ({b - a:+.1f})" for a, b in zip(before, after, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replace_between(page: str, first: str, last: str, content: str) -> str:
    """The page with `content` between two markers; a page without them is an error."""
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise DataError("The page has no markers", expected=f"{first} and, below it, {last}")
    return f"{before}{first}\n\n{content}\n{last}{after}"


def main() -> None:
    """Read the result files and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/bench"))
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    options = parser.parse_args()
    files = sorted(options.results.glob("*.jsonl"))
    records = [record for file in files for record in read_records(file)]
    current, others = split_by_code(records)
    parts = (describe_left_out(others), render_markdown(current), paper_gains())
    content = "\n".join(part for part in parts if part.strip())
    page = options.page.read_text(encoding="utf-8") if options.page.exists() else START
    page = replace_between(page, FINDINGS_BEGIN, FINDINGS_END, render_findings(current))
    options.page.write_text(replace_between(page, BEGIN, END, content), encoding="utf-8")
    depths = options.page.with_stem(f"{options.page.stem}-depths")
    depths.write_text(DEPTHS + render_depths(current), encoding="utf-8")
    print(f"{options.page}: {len(current)} lines of results, {len(others)} rows left out")


if __name__ == "__main__":
    main()
