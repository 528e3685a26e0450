"""Bring your own vectors: an encoder that looks embeddings up by text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from metaxc.array_checks import AGAIN, take_array
from metaxc.arrays import Floats, Rows
from metaxc.artifacts import array_digest, json_digest, load_arrays, load_json, save_arrays, save_json
from metaxc.data import Dataset, Texts
from metaxc.data.text_lists import list_texts
from metaxc.encoders.encoder import unit_rows
from metaxc.errors import DataError, ModelError


class Vectors:
    """Your own embeddings, by text.

    A text without a vector is an error; pass new items and queries as arrays (`Emmett.represent` and `Emmett.search`
    accept vectors in place of texts).

    Args:
        query_texts: The texts of the queries (or ids, where the data set's texts are ids).
        queries: (queries, dim) vectors.
        item_texts: The texts of the items.
        items: (items, dim) vectors.
    """

    kind: ClassVar[str] = "vectors"

    def __init__(
        self,
        query_texts: Sequence[str],
        queries: NDArray[np.floating],
        item_texts: Sequence[str],
        items: NDArray[np.floating],
    ):
        self.items = unit_rows(items, what="item vectors")
        self.queries = unit_rows(queries, dim=self.items.shape[1], what="query vectors")
        for what, texts, vectors in (("query", query_texts, self.queries), ("item", item_texts, self.items)):
            if len(texts) != len(vectors):
                raise DataError(
                    f"The {what} texts and vectors differ in number",
                    got=f"{len(texts)} texts, {len(vectors)} vectors",
                    expected="one vector per text",
                )
        self.query_texts, self.item_texts = list(query_texts), list(item_texts)
        self._query_row = {text: row for row, text in enumerate(self.query_texts)}
        self._item_row = {text: row for row, text in enumerate(self.item_texts)}

    def __repr__(self) -> str:
        return f"Vectors({len(self.queries):,} queries, {len(self.items):,} items, dim={self.dim})"

    @property
    def dim(self) -> int:
        return int(self.items.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        sides = ((self.query_texts, self.queries), (self.item_texts, self.items))
        parts = [digest for texts, vectors in sides for digest in (json_digest(texts), array_digest(vectors))]
        return json_digest([self.kind, *parts])

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        return self.queries[_rows(list_texts(texts), self._query_row, "query")]

    def encode_items(self, texts: Sequence[str]) -> Floats:
        return self.items[_rows(list_texts(texts), self._item_row, "item")]

    def has_item(self, text: str) -> bool:
        """Whether there is a vector for an item with this text."""
        return text in self._item_row

    def has_query(self, text: str) -> bool:
        """Whether there is a vector for a query with this text."""
        return text in self._query_row

    def save(self, folder: Path) -> None:
        save_arrays(folder / "vectors.safetensors", {"queries": self.queries, "items": self.items})
        save_json(
            folder / "encoder.json",
            {"kind": self.kind, "dim": self.dim, "queries": self.query_texts, "items": self.item_texts},
        )

    @classmethod
    def load(cls, folder: Path) -> Vectors:
        file = folder / "vectors.safetensors"
        facts, arrays = load_json(folder / "encoder.json"), load_arrays(file)
        texts = [facts["queries"], facts["items"]]
        for part in texts:
            if not isinstance(part, list) or not all(isinstance(text, str) for text in part):
                raise ModelError(
                    "The texts of the vectors cannot be read", got=folder / "encoder.json", fix=AGAIN
                )
        queries, items = (take_array(arrays, name, file, (None, None)) for name in ("queries", "items"))
        return cls(texts[0], queries, texts[1], items)


def read_vectors(folder: Path, dataset: Dataset) -> Vectors:
    """Read the vectors in a data set's folder: `vectors.items.npy` and `vectors.queries.npy`, or
    `vectors.queries.train.npy` and `vectors.queries.test.npy`, with rows in the order of the texts."""
    parts = [("items", dataset.items), *_query_parts(folder, dataset)]
    arrays = {}
    for name, texts in parts:
        file = folder / f"vectors.{name}.npy"
        try:
            arrays[name] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                "A vector file cannot be read", got=f"{file}: {error}", expected="a .npy array"
            ) from error
        if arrays[name].ndim != 2 or len(arrays[name]) != len(texts):
            raise DataError(
                "A vector file does not match its texts",
                got=f"{file}: shape {arrays[name].shape}",
                expected=f"({len(texts)}, dim)",
            )
    names = [name for name, _ in parts[1:]]
    dims = {arrays[name].shape[1] for name in arrays}
    if len(dims) > 1:
        raise DataError("The vectors differ in dimension", got=sorted(dims), expected="one dimension")
    query_texts = [text for _, texts in parts[1:] for text in texts.texts]
    queries = np.concatenate([arrays[name] for name in names])
    return Vectors(query_texts, queries, dataset.items.texts, arrays["items"])


def _query_parts(folder: Path, dataset: Dataset) -> list[tuple[str, Texts]]:
    if dataset.test is None or (folder / "vectors.queries.npy").exists():
        return [("queries", dataset.train.queries)]
    return [("queries.train", dataset.train.queries), ("queries.test", dataset.test.queries)]


def _rows(texts: Sequence[str], row_by_text: dict[str, int], what: str) -> Rows:
    missing = [text for text in texts if text not in row_by_text]
    if missing:
        raise DataError(
            f"No vector for this {what}",
            got=f"{missing[0]!r} ({len(missing)} in all)",
            expected=f"one of the {len(row_by_text):,} {what} texts given with the vectors",
            fix=f"pass the new {what}'s vector in place of its text",
        )
    return np.asarray([row_by_text[text] for text in texts], dtype=np.int64)
