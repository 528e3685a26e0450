"""What informs an item: its nearest neighbours, its cluster, a re-ranked shortlist, or votes of its first clicks."""

from __future__ import annotations

from pathlib import Path

from metaxc.array_checks import take_array
from metaxc.arrays import Floats
from metaxc.artifacts import Arrays, load_arrays, save_arrays
from metaxc.errors import ModelError
from metaxc.selectors.nearest import ClusterSelector, NearestSelector, Selector, cluster
from metaxc.selectors.rerank import RerankSelector
from metaxc.selectors.voting import Voters, max_votes

__all__ = [
    "ClusterSelector",
    "NearestSelector",
    "RerankSelector",
    "Selector",
    "Voters",
    "cluster",
    "load_selector",
    "max_votes",
    "save_selector",
    "selector_kind",
]


def selector_kind(selector: Selector) -> str:
    """The kind that a model folder records; `"own"` for a selector that a user wrote."""
    return str(getattr(selector, "kind", "own"))


def save_selector(file: Path, selector: Selector, arrays: Arrays) -> None:
    """Write the selector's arrays together with `arrays`; no file where there are none.

    The nearest selector uses the observed embeddings, which are saved anyway, and with many of them an index. Code is
    not written: a selector that calls a function must be passed to `load_selector` again.
    """
    if isinstance(selector, NearestSelector):
        arrays = {**arrays, **selector.items.arrays()}
    if isinstance(selector, ClusterSelector):
        arrays = {**arrays, "centroids": selector.centroids}
    if arrays:
        save_arrays(file, arrays)


def load_selector(
    file: Path, kind: str, given: Selector | None, embeddings: Floats
) -> tuple[Selector, Arrays]:
    """The selector of a folder, and the arrays that were saved with it.

    Args:
        file: As `save_selector` wrote it; may be absent.
        kind: As `selector_kind` returned it.
        given: Used instead when not None.
        embeddings: (observed, dim) of the observed items.
    """
    arrays = load_arrays(file) if file.is_file() else {}
    if given is not None:
        return given, arrays
    if kind == NearestSelector.kind:
        return NearestSelector(embeddings, arrays), arrays
    if kind == ClusterSelector.kind:
        return ClusterSelector(take_array(arrays, "centroids", file, (None, None))), arrays
    raise ModelError(
        "The model's selector calls a function, which cannot be saved",
        got=f"a selector of kind {kind!r}",
        expected="the selector that the model was saved with",
        fix="pass it again: Emmett.load(folder, selector=...)",
    )
