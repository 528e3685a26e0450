"""A callable that adds vectors to batches of items or queries, for engines that give every worker a part of the data.

Ray Data (`map_batches`), Spark (`mapInPandas`) and Daft (UDFs) call it alike: docs/scale.md has a snippet for each.
"""

from __future__ import annotations

import os
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from metaxc.arrays import Floats
from metaxc.artifacts import MANIFEST, file_digest
from metaxc.data.text_lists import list_texts
from metaxc.emmett import Emmett
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.encoders import EmbeddingCache
from metaxc.errors import DataError, ModelError

TEXT, VECTOR = "text", "vector"
"""Names of the column that is read and of the one that is added."""


class RepresentBatch:
    """Adds the column `vector` to a batch with a column `text`; all other columns, such as `id`, stay as they are.

    Nothing is loaded before the first batch. A copy of the callable in another process loads the model there once, also
    where the engine sends a new copy with every task. So the callable is small to send, and workers need nothing but
    the model folder.

    Args:
        model: The model folder, under the same path on every machine.
        queries: Whether the texts are queries; otherwise they are new items, whose vectors are meta-classifiers.
        exposure: Of novel items, for queries alone; None for the value chosen in training.
        base: The folder of the pretrained encoder, if it has moved since training.
        cache: Folder of exported encoders; `$METAXC_CACHE` or `~/.cache/metaxc` when None. Embeddings are not kept.

    Example:
        >>> represent = RepresentBatch("model")  # doctest: +SKIP
        >>> represent({"id": ["a"], "text": ["trail running sandals"]})["vector"].shape  # doctest: +SKIP
        (1, 385)
    """

    def __init__(
        self,
        model: str | Path,
        *,
        queries: bool = False,
        exposure: float | None = None,
        base: str | Path | None = None,
        cache: str | Path | None = None,
    ):
        if exposure is not None and not queries:
            raise DataError(
                "Only queries have an exposure",
                got=f"exposure={exposure:g} for items",
                expected="exposure together with queries=True",
                fix="leave it out: the novelty of an item is in its vector",
            )
        # Absolute, because workers have other current folders.
        self.folder = Path(os.path.abspath(model))
        self.base, self.cache = (None if path is None else os.path.abspath(path) for path in (base, cache))
        self.queries, self.exposure = queries, exposure

    def __repr__(self) -> str:
        return f"RepresentBatch({str(self.folder)!r}, {'queries' if self.queries else 'items'})"

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, which every process loads by itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("model", "identity")}

    @cached_property
    def model(self) -> Emmett:
        """The model, loaded once by a process."""
        manifest = self.folder / MANIFEST
        if not manifest.is_file():
            raise ModelError(
                "The model folder is not on this machine",
                got=self.folder,
                expected="a model folder under the same path on every machine",
                fix="put the model on a file system that all machines share, or copy it to each of them",
            )
        return _load_model(self.folder, file_digest(manifest), self.base, self.cache)

    @cached_property
    def identity(self) -> dict[str, object]:
        """What the vectors depend on besides the texts, for JSON.

        Vectors of items depend on the item side of a model alone: a model that was trained again with `--keep-items`
        gives the same ones.
        """
        if not self.queries:
            return {"vectors": "items", "model": item_fingerprint(self.model), "exposure": None}
        return {"vectors": "queries", "model": self.model.fingerprint, "exposure": self.exposure}

    def vectors(self, texts: Any) -> Floats:
        """(n, dim + 1) float32 of a list or column of texts."""
        given = list_texts(texts)
        return (
            self.model.encode_queries(given, self.exposure) if self.queries else self.model.represent(given)
        )

    def __call__(self, batch: Any) -> Any:
        """The batch with the column `vector`, of the kind that was given.

        Args:
            batch: A dictionary of columns (arrays or lists), an Arrow table or record batch, or a pandas data frame.

        Returns:
            In a dictionary the column is an (n, dim + 1) float32 array, in an Arrow table it has fixed-size lists, in a
            data frame arrays.
        """
        is_arrow = hasattr(batch, "append_column")
        names = list(batch.schema.names if is_arrow else batch.keys())
        if TEXT not in names or VECTOR in names:
            raise DataError(
                f"The batch has no column {TEXT!r}"
                if TEXT not in names
                else f"The batch already has a column {VECTOR!r}",
                got=", ".join(map(str, names)) or "no columns",
                expected=f"a column {TEXT!r} and others, such as 'id', but none with the name {VECTOR!r}",
                fix="rename the columns",
            )
        vectors = self.vectors(batch[TEXT])
        if is_arrow:
            return batch.append_column(VECTOR, vector_array(vectors))
        if hasattr(batch, "assign"):
            return batch.assign(**{VECTOR: list(vectors)})
        return {**batch, VECTOR: vectors}


def vector_array(vectors: Floats) -> Any:
    """An Arrow array of fixed-size lists from an (n, dim) float32 array."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


@lru_cache(maxsize=1)
def _load_model(
    folder: Path, digest: str, base: str | Path | None, cache: str | Path | None
) -> Emmett:  # `digest` makes another model in the same folder another entry
    return Emmett.load(folder, base=base, cache=EmbeddingCache(cache, keeps_embeddings=False))
