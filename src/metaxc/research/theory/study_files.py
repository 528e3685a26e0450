"""A study's result file: what was done, every row, the means, the verdicts. A killed study goes on from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metaxc.artifacts import write_atomically
from metaxc.errors import DataError
from metaxc.research.theory.plan import Row, Study
from metaxc.research.theory.terms import agreement, measured
from metaxc.research.theory.verdicts import verdicts


def write_study(file: Path, about: dict[str, Any], study: Study, rows: Sequence[Row]) -> None:
    """Write what there is; the verdicts once every setting has two seeds.

    Args:
        file: JSON.
        about: The data set, its fingerprint and the encoder's.
        study: How.
        rows: Done so far.
    """
    settings = measured(rows, study)
    result = {**about, "study": asdict(study), "rows": [row.to_dict() for row in rows]}
    result["settings"] = [
        {**one.to_dict(), "half": None if one.half != one.half else one.half} for one in settings
    ]
    if len(rows) >= 2 * len(study.settings()):
        result["rank correlation of the gap"] = {
            form: round(agreement(settings, form), 3) for form in ("published", "derived")
        }
        result["verdicts"] = [asdict(verdict) for verdict in verdicts(rows)]
    write_atomically(file, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def read_study(file: Path, about: dict[str, Any], study: Study) -> list[Row]:
    """The rows of an earlier run, which may have had fewer or more seeds; none where there is no file."""
    if not file.exists():
        return []
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        same = {**result["study"], "seeds": study.seeds} == json.loads(json.dumps(asdict(study)))
        same = same and all(result[name] == value for name, value in about.items())
        rows = [Row.of(row) for row in result["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("The result file cannot be read", got=f"{file}: {error}", fix="remove it") from error
    if not same:
        raise DataError(
            "The result file is of another study",
            got=str(file),
            expected="the same data set, encoder and settings",
            fix="give another --out, or remove the file",
        )
    return [row for row in rows if row.seed < study.seeds]
