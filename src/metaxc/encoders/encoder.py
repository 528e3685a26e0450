"""The contract of every encoder, the check of vectors that come from outside, and the embedding cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm import tqdm

from metaxc.array_checks import all_finite
from metaxc.arrays import Floats
from metaxc.artifacts import atomic_file, file_digest, load_json, save_json, write_atomically
from metaxc.encoders.cache_folder import open_cache_folder
from metaxc.errors import DataError, MetaxcError, ModelError

CHUNK = 8_192
"""Texts per chunk: about half a minute of a transformer's work on two cores, which is the most that a kill loses."""


@runtime_checkable
class Encoder(Protocol):
    """Texts to embeddings: unit float32 rows, queries and items in one space.

    Queries and items may share one function (Siamese) or have two (two towers).
    """

    kind: ClassVar[str]

    @property
    def dim(self) -> int:
        """The size of an embedding."""

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder: same fingerprint, same embeddings."""

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """(queries, dim) float32, unit rows."""

    def encode_items(self, texts: Sequence[str]) -> Floats:
        """(items, dim) float32, unit rows."""

    def save(self, folder: Path) -> None:
        """Write what `metaxc.encoders.load_encoder` needs."""


def unit_rows(vectors: NDArray[np.floating], dim: int | None = None, what: str = "vectors") -> Floats:
    """(n, dim) float32 with unit rows; a wrong shape, NaN, a zero row or one that is too long is a `DataError`."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused below
        array = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or (dim is not None and array.shape[1] != dim):
        raise DataError(
            f"The {what} have the wrong shape",
            got=array.shape,
            expected=f"(n, {dim if dim is not None else 'dim'})",
            fix="use vectors of the encoder that the model was trained with",
        )
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise DataError(
            f"The {what} contain NaN or infinity",
            got=f"{len(bad)} rows, the first is row {bad[0]}",
            expected="finite numbers",
        )
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(array, axis=1, keepdims=True)
    if len(array) and not norms.all():
        raise DataError(
            f"The {what} contain a zero vector",
            got=f"row {int(np.flatnonzero(norms == 0)[0])}",
            expected="vectors with a direction",
        )
    if not np.isfinite(norms).all():
        raise DataError(
            f"The {what} contain numbers that are too large",
            got=f"row {int(np.flatnonzero(~np.isfinite(norms))[0])}: its length is not a float32 number",
            expected="unit vectors, or vectors of a length that float32 can hold",
        )
    # Unit rows stay as they are to the last bit, so that saved vectors are equal to the loaded ones.
    norms[np.abs(norms - 1) < 1e-5] = 1
    return array / norms  # type: ignore[no-any-return]


def embed_given(
    given: Sequence[str] | Floats, encode: Callable[[Sequence[str]], Floats], dim: int, what: str
) -> Floats:
    """(n, dim) float32: texts, encoded, or embeddings, checked; an empty text is a `DataError`."""
    if isinstance(given, np.ndarray):
        return unit_rows(given, dim, f"{what} vectors")
    empty = [row for row, text in enumerate(given) if not text.strip()]
    if empty:
        raise DataError(f"An empty {what}", got=f"position {empty[0]}", expected=f"the {what}'s text")
    return encode(given)


class EmbeddingCache:
    """Embeddings on disk, so that no text is encoded twice by the same encoder.

    One `.npy` file per list of texts, named by the SHA-256 of the texts, in a folder named by the encoder's
    fingerprint. It is filled chunk by chunk through a memory map: memory does not grow with the data, and a run that
    was killed resumes with the chunk it was encoding (which is why `reuse_or_build`, all or nothing, does not serve
    here). A finished file has its checksum beside it, with the encoder and the texts that it belongs to; it is used
    only where all of them agree. The folder is private to the user (`metaxc.encoders.cache_folder`).

    Args:
        folder: Where to keep the embeddings; `$METAXC_CACHE` or `~/.cache/metaxc` when None.
        keeps_embeddings: False keeps exported graphs alone, as a service needs it: otherwise every long request would
            leave a file.
    """

    def __init__(self, folder: str | Path | None = None, *, keeps_embeddings: bool = True):
        self.keeps_embeddings = keeps_embeddings
        default = os.environ.get("METAXC_CACHE") or Path.home() / ".cache" / "metaxc"
        self.folder = Path(default if folder is None else folder)

    def get(
        self,
        fingerprint: str,
        texts: Sequence[str],
        dim: int,
        encode: Callable[[Sequence[str]], Floats],
        label: str = "encode",
    ) -> Floats:
        """(texts, dim) float32, memory-mapped; missing chunks are encoded now."""
        folder = open_cache_folder(self.folder, "embeddings", fingerprint[:32])
        digest = _texts_digest(texts)
        source: dict[str, object] = {"encoder": fingerprint, "texts": digest, "shape": [len(texts), dim]}
        paths = (folder / f"{digest[:32]}{end}" for end in (".npy", ".json", ".part", ".done"))
        final, facts, part, done = paths
        with FileLock(folder / f"{digest[:32]}.lock"):
            if not _is_intact(final, facts, source):
                _encode_in_chunks(texts, dim, encode, label, part, done)
                with atomic_file(facts) as new:
                    save_json(new, {"sha256": file_digest(part), **source})
                part.rename(final)
                done.unlink(missing_ok=True)
        vectors: Floats = np.load(final, mmap_mode="r", allow_pickle=False)
        return vectors


def _encode_in_chunks(
    texts: Sequence[str],
    dim: int,
    encode: Callable[[Sequence[str]], Floats],
    label: str,
    part: Path,
    done: Path,
) -> None:
    """Fill the array file `part`; the file `done` holds the number of texts that are already in it."""
    finished = _count_finished(part, done, (len(texts), dim))
    out = np.lib.format.open_memmap(
        part, mode="r+" if finished else "w+", dtype=np.float32, shape=(len(texts), dim)
    )
    with tqdm(total=len(texts), initial=finished, desc=label, unit="text", disable=None, leave=False) as bar:
        for start in range(finished, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            out[start : start + len(chunk)] = encode(chunk)
            out.flush()
            write_atomically(done, str(start + len(chunk)).encode())
            bar.update(len(chunk))
    if not all_finite(out):
        done.unlink(missing_ok=True)
        raise ModelError(
            "The encoder returned NaN or infinity", got=part, expected="finite embeddings", fix="encode again"
        )


def _count_finished(part: Path, done: Path, shape: tuple[int, int]) -> int:
    """How many texts an earlier run has encoded; 0 where its files are missing, damaged or of another shape."""
    try:
        count, found = int(done.read_text()), np.load(part, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return 0
    return count if 0 <= count <= shape[0] and found.shape == shape and found.dtype == np.float32 else 0


def _texts_digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _is_intact(final: Path, facts: Path, source: dict[str, object]) -> bool:
    """Whether a finished file is what was written, and belongs to this source; an older file without one does not."""
    if not final.is_file() or not facts.is_file():
        return False
    try:
        if load_json(facts) != {"sha256": file_digest(final), **source}:
            return False
        vectors = np.load(final, mmap_mode="r", allow_pickle=False)
    except (MetaxcError, OSError, ValueError, EOFError):
        return False
    return list(vectors.shape) == source["shape"] and vectors.dtype == np.float32 and all_finite(vectors)
