"""Embeddings on disk, so that no text is encoded twice by the same encoder.

One `.npy` per list of texts, named by the SHA-256 of the texts, in a folder named by the encoder's
fingerprint. It is filled chunk by chunk through a memory map: memory does not grow with the data, and a
killed run goes on with the chunk it was at. A finished file has its checksum beside it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock
from tqdm import tqdm

from metaxc.arrays import Floats
from metaxc.artifacts import file_digest, load_json, save_json
from metaxc.errors import MetaxcError

CHUNK = 8_192
"""Texts per chunk: about half a minute of a transformer's work on two cores, the most that a kill loses."""


def default_cache() -> Path:
    """`$METAXC_CACHE`, or `~/.cache/metaxc`."""
    return Path(os.environ.get("METAXC_CACHE") or Path.home() / ".cache" / "metaxc")


class EmbeddingCache:
    """Embeddings by encoder and texts.

    Args:
        folder: Where to keep them; `default_cache()` when None.
    """

    def __init__(self, folder: str | Path | None = None):
        self.folder = Path(folder) if folder is not None else default_cache()

    def get(
        self,
        fingerprint: str,
        texts: Sequence[str],
        dim: int,
        encode: Callable[[Sequence[str]], Floats],
        label: str = "encode",
    ) -> Floats:
        """(texts, dim) float32, memory-mapped; chunks that are not there yet are encoded now."""
        place = self.folder / "embeddings" / fingerprint[:32]
        place.mkdir(parents=True, exist_ok=True)
        name = _name_of(texts)
        final, facts, part, done = (place / f"{name}{end}" for end in (".npy", ".json", ".part", ".done"))
        with FileLock(place / f"{name}.lock"):
            if not _whole(final, facts):
                self._fill(texts, dim, encode, label, part, done)
                save_json(facts, {"sha256": file_digest(part)})
                part.rename(final)
                done.unlink(missing_ok=True)
        vectors: Floats = np.load(final, mmap_mode="r", allow_pickle=False)
        return vectors

    def _fill(
        self,
        texts: Sequence[str],
        dim: int,
        encode: Callable[[Sequence[str]], Floats],
        label: str,
        part: Path,
        done: Path,
    ) -> None:
        finished = int(done.read_text()) if done.exists() and part.exists() else 0
        out = np.lib.format.open_memmap(
            part, mode="r+" if finished else "w+", dtype=np.float32, shape=(len(texts), dim)
        )
        with tqdm(
            total=len(texts), initial=finished, desc=label, unit="text", disable=None, leave=False
        ) as bar:
            for start in range(finished, len(texts), CHUNK):
                chunk = texts[start : start + CHUNK]
                out[start : start + len(chunk)] = encode(chunk)
                out.flush()
                mark = done.with_suffix(".mark")
                mark.write_text(str(start + len(chunk)))
                mark.replace(done)
                bar.update(len(chunk))


def _name_of(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def _whole(final: Path, facts: Path) -> bool:
    if not final.is_file() or not facts.is_file():
        return False
    try:
        return bool(load_json(facts).get("sha256") == file_digest(final))
    except (MetaxcError, AttributeError):
        return False
