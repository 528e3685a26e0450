"""Texts and vectors as callers give them, turned into the vectors that the catalog stores and searches with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.item_rules import MOST_EXPOSURE, validate_exposure
from metaxc.catalog.vector_rules import read_numbers, validate_embedding, wrong_length
from metaxc.data.input_rules import validate_query
from metaxc.emmett import Emmett
from metaxc.errors import DataError


def embed_each(
    given: Sequence[tuple[str, Any]],
    known: Mapping[str, Floats] | None,
    encode: Callable[[Sequence[str]], Floats],
) -> list[Floats]:
    """The embedding of each text: its own vector where it has one, the known one, or else the encoder's.

    Args:
        given: Texts with their (dim,) unit vectors; None for none.
        known: Embeddings by text.
        encode: Encodes the other texts, each once.
    """
    by_text = dict(known or {})
    missing = list(dict.fromkeys(text for text, vector in given if vector is None and text not in by_text))
    if missing:
        by_text |= zip(missing, encode(missing), strict=True)
    return [by_text[text] if vector is None else vector for text, vector in given]


def embed_items(given: Sequence[str | Floats], model: Emmett) -> Floats:
    """(n, dim) float32 embeddings of items: texts are encoded, vectors are checked and made unit vectors."""
    return _embed(given, model.encoder.encode_items, model.encoder.dim, "item vector")


def encode_queries(
    given: Sequence[str | Floats], model: Emmett, exposure: float | Sequence[float | None] | None
) -> Floats:
    """(n, dim + 1) float32: the vectors that queries are searched with.

    Args:
        given: Texts, (dim,) embeddings, or (dim + 1,) final vectors, in any order.
        model: Encodes texts and expands embeddings.
        exposure: One value, or one per query; None for the value chosen in training. A final vector has its own.
    """
    exposures = [exposure] * len(given) if exposure is None or isinstance(exposure, int | float) else exposure
    given = [one if isinstance(one, str) else read_numbers(one, "query vector") for one in given]
    dim = model.encoder.dim
    vectors = np.empty((len(given), dim + 1), np.float32)
    embedded = []
    for row, (one, wanted) in enumerate(zip(given, exposures, strict=True)):
        if wanted is not None:
            validate_exposure(wanted)
        if isinstance(one, str):
            validate_query(one)
        elif len(one) == dim + 1:
            vectors[row] = _final_vector(one, wanted)
            continue
        embedded.append(row)
    if embedded:
        embeddings = _embed(
            [given[row] for row in embedded],
            model.encoder.encode_queries,
            dim,
            "query vector",
            f"{dim} numbers, as the model's encoder gives them, or {dim + 1} with the exposure, as represent does",
        )
        vectors[embedded] = model.encode_queries(embeddings, 1.0)
        chosen = [exposures[row] for row in embedded]
        vectors[embedded, -1] *= [model.calibration.exposure if one is None else one for one in chosen]
    return vectors


def _final_vector(vector: Floats, exposure: float | None) -> Floats:
    if exposure is not None:
        raise DataError(
            "The exposure is part of a final query vector",
            got=f"a vector of {len(vector)} numbers and exposure {exposure:g}",
            expected="an embedding or a text with an exposure, or a final vector without",
            fix="leave the exposure out, or pass it to `encode` (over HTTP: /v1/represent)",
        )
    if np.abs(vector).max() > MOST_EXPOSURE:
        raise DataError(
            "The numbers of a final query vector are too large",
            got=f"{float(np.abs(vector).max()):g}",
            expected=f"numbers from {-MOST_EXPOSURE:g} to {MOST_EXPOSURE:g}",
            fix="pass the vector as represent returns it",
        )
    return vector


def _embed(
    given: Sequence[str | Floats],
    encode: Callable[[Sequence[str]], Floats],
    dim: int,
    what: str,
    expected: str | None = None,
) -> Floats:
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) == len(given):
        return encode(texts) if texts else np.empty((0, dim), np.float32)
    out = np.empty((len(given), dim), np.float32)
    for row, one in enumerate(given):
        if not isinstance(one, str):
            if expected is not None and len(one) != dim:
                raise wrong_length(len(one), what, expected)
            out[row] = validate_embedding(one, dim, what)
    if texts:
        out[[row for row, one in enumerate(given) if isinstance(one, str)]] = encode(texts)
    return out
