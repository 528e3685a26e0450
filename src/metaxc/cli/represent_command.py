"""`metaxc represent`: meta-classifiers as vectors, for a vector database of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.shared import Base, Cache, Model, Threads, load_model, print_status, read_lines, set_threads


def represent(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts of new items.", metavar="TEXT...")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Items, one per line; - is stdin.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A .npy file; without it, JSON lines on stdout.")
    ] = None,
    queries: Annotated[
        bool, typer.Option("--queries", help="The texts are queries: write query vectors.")
    ] = False,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
) -> None:
    """Compute the meta-classifiers of new items, or the vectors of queries; a score is their inner product."""
    import numpy as np

    set_threads(threads)
    given = read_lines(file, texts, "items")
    trained = load_model(model, base, cache)
    vectors = trained.encode_queries(given) if queries else trained.represent(given)
    if out is not None:
        np.save(out, vectors)
        print_status(f"{out}: {vectors.shape[0]:,} × {vectors.shape[1]} float32")
        return
    for text, vector in zip(given, vectors, strict=True):
        print(json.dumps({"text": text, "vector": [round(float(x), 7) for x in vector]}, ensure_ascii=False))
