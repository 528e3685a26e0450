"""An index on disk: keys and vectors, codes, facts and a manifest of checksums, whole or not at all.

Every checksum is verified before anything is parsed: faiss loads a file with flipped bytes and answers wrongly, or
takes the process down.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaxc.arrays import Floats, Keys
from metaxc.artifacts import (
    Arrays,
    atomic_folder,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
    write_manifest,
)
from metaxc.errors import DataError, ModelError
from metaxc.index.slots import validate_keys, validate_vectors

if TYPE_CHECKING:
    from metaxc.index.protocol import Index

KIND = "index"
VECTORS, CODES, ABOUT = "vectors.safetensors", "codes.safetensors", "index.json"


def write_index(
    folder: Path,
    kind: str,
    keys: Keys,
    vectors: Floats,
    facts: dict[str, Any],
    codes: Arrays | None = None,
) -> None:
    """Write an index of the kind "exact" or "scan"; what `save` does."""
    with atomic_folder(folder) as new:
        save_arrays(new / VECTORS, {"keys": keys, "vectors": vectors})
        if codes is not None:
            save_arrays(new / CODES, codes)
        about = {"kind": kind, "dim": vectors.shape[1], "count": len(keys), "coded": codes is not None}
        save_json(new / ABOUT, {**about, "facts": facts})
        write_manifest(new, KIND)


def load_index(folder: Path) -> tuple[Index, dict[str, Any]]:
    """The index in a folder, and the facts that were saved with it.

    A missing, truncated or changed file is a `ModelError`, before any of them is parsed.
    """
    from metaxc.index.codes import Codes
    from metaxc.index.exact import ExactIndex
    from metaxc.index.scan import ScanIndex

    verify_folder(folder, KIND)
    about = load_json(folder / ABOUT)
    arrays = load_arrays(folder / VECTORS)
    try:
        kind, dim, count, facts = about["kind"], about["dim"], about["count"], about["facts"]
        keys = validate_keys(arrays["keys"])
        vectors = validate_vectors(arrays["vectors"], dim, count)
        if len(keys) != count or kind not in (ExactIndex.kind, ScanIndex.kind):
            raise ValueError(f"{len(keys):,} keys in an index of kind {kind!r}")
        coded = load_arrays(folder / CODES) if about["coded"] else None
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise ModelError(
            "The index folder does not fit together", got=str(error), fix="build the index again"
        ) from error
    if kind == ExactIndex.kind:
        return ExactIndex.of(keys, vectors), facts
    return ScanIndex.of(keys, vectors, None if coded is None else Codes.of_arrays(coded, dim, count)), facts
