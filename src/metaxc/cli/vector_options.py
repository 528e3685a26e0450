"""Vectors on the command line: options that name files of them, and how these files are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from metaxc.cli.shared import read_lines
from metaxc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from metaxc.arrays import Floats

Vector = Annotated[
    Path | None,
    Option(
        "--vector",
        metavar="FILE",
        help="A file with the embedding, by the encoder that the model was trained with: .npy, or JSON ([0.1, …]); - "
        "is JSON on stdin.",
    ),
]
Vectors = Annotated[
    Path | None,
    Option(
        "--vectors",
        metavar="FILE",
        help="Embeddings in place of texts, by the encoder that the model was trained with: an (n, dim) array (.npy), "
        'or JSON lines of {"vector": […]}, with "text" if wanted; - is JSON lines on stdin.',
    ),
]


@dataclass(frozen=True)
class GivenTexts:
    """Queries or items as they were given.

    Args:
        given: Texts, or an (n, dim) array of embeddings.
        names: (n,) what to call each in an answer: its text, or "vector 1".
    """

    given: list[str] | Floats
    names: list[str]


def read_queries(
    file: Path | None, texts: Sequence[str] | None, vectors: Path | None, what: str = "queries"
) -> GivenTexts:
    """Texts from the command line or a file, or the vectors of a file in their place."""
    if vectors is None:
        lines = read_lines(file, texts, what)
        return GivenTexts(lines, lines)
    if file is not None or texts:
        raise ConfigError(
            f"The {what} are given twice",
            got="texts and --vectors",
            expected="one of them",
            fix=f'leave the texts out; a file of JSON lines may have a "text" beside each vector of the {what}',
        )
    return _read_vectors(vectors)


def read_vector(file: Path) -> Floats:
    """(dim,) float32: the only vector of a file."""
    if file.suffix == ".npy":
        array = _load_array(file)
        return array[0] if array.ndim == 2 and len(array) == 1 else array
    from metaxc.catalog.vector_rules import read_numbers

    try:
        content = json.loads(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            "The vector cannot be read",
            got=f"{file}: {error}",
            expected="a .npy file, or JSON: [0.1, -0.2, …]",
        ) from error
    return read_numbers(content, f"vector in {file}")


def _read_vectors(file: Path) -> GivenTexts:
    if file.suffix == ".npy":
        array = _load_array(file)
        if array.ndim != 2:
            raise DataError(
                "A vector file has the wrong shape", got=f"{file}: {array.shape}", expected="(n, dim)"
            )
        return GivenTexts(array, [f"vector {row + 1}" for row in range(len(array))])
    import numpy as np

    from metaxc.catalog.vector_rules import read_numbers

    vectors: list[Any] = []
    names: list[str] = []
    for number, line in enumerate(read_lines(file, None, "vectors"), 1):
        try:
            record = json.loads(line)
            vectors.append(read_numbers(record["vector"], f"vector on line {number} of {file}"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                "A line is not a vector",
                got=f"{file}, line {number}: {line[:80]}",
                expected='{"vector": [0.1, …]}, with "text" if wanted',
            ) from error
        if len(vectors[-1]) != len(vectors[0]):
            raise DataError(
                "The vectors of a file differ in length",
                got=f"{file}, line {number}: {len(vectors[-1])} numbers",
                expected=f"{len(vectors[0])} numbers, as on the first line",
            )
        names.append(str(record.get("text") or f"vector {number}"))
    return GivenTexts(np.stack(vectors) if vectors else np.empty((0, 0), np.float32), names)


def _load_array(file: Path) -> Floats:
    import numpy as np

    try:
        return np.load(file, allow_pickle=False).astype(np.float32)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            "A vector file cannot be read", got=f"{file}: {error}", expected="a .npy array of numbers"
        ) from error
