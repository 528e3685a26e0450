"""What `metaxc data check` and `metaxc data import` print: the verdict first, then problems and changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaxc.data import CheckReport, Dataset
    from metaxc.data.repair import RepairList


def print_check(report: CheckReport, refused: str | None = None, accepted: str | None = None) -> None:
    """Print the verdict, the sizes, then all problems: errors first, each marked as what it is.

    Args:
        report: The report.
        refused, accepted: The verdict where there is an error and where there is none.
    """
    from metaxc.data.check import MAX_LISTED

    counts = ", ".join(
        f"{report.counts[name]:,} {name}{'' if report.counts[name] == 1 else 's'}"
        for name in ("error", "warning", "note")
    )
    bad, good = refused or f"{report.folder} cannot be used", accepted or f"{report.folder} can be used"
    print(f"{good if report.ok else bad}: {counts}.")
    print("  " + (", ".join(f"{count:,} {what}" for what, count in report.sizes.items()) or "no data"))
    for part, (first, last) in report.time_ranges.items():
        print(f"  {part} events from {first} to {last}")
    for severity in ("error", "warning", "note"):
        found = [problem for problem in report.problems if problem.severity == severity]
        for problem in found:
            print(f"{severity}: {problem}")
        for key in dict.fromkeys(f"{problem.file}: {problem.kind}" for problem in found):
            if report.totals[key] > MAX_LISTED:
                print(
                    f"{severity}: {key}: {report.totals[key]:,} in total, the first {MAX_LISTED} are listed"
                )


def print_changes(folder: Path, dataset: Dataset, listed: RepairList) -> None:
    """Print what was written, what was left out of it, and where the list is."""
    from metaxc.data.repair import LIST_FILE

    print(f"{folder} can be used: {dataset!r}")
    print(f"  {listed}" + (f"; {folder / LIST_FILE} says which and why" if listed else ""))
    for line in listed.count_kinds():
        print(f"  {line}")
