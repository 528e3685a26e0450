"""Which vectors inform an item: those of its nearest neighbours, its cluster, a re-ranked shortlist, or votes."""

from __future__ import annotations

from pathlib import Path

from metaxc.artifacts import Arrays, load_arrays, save_arrays
from metaxc.errors import ModelError
from metaxc.selectors.clusters import ClusterSelector, cluster
from metaxc.selectors.nearest import NearestSelector
from metaxc.selectors.rerank import RerankSelector
from metaxc.selectors.selector import Selector
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
    """What a model folder calls the selector; one of a user's making is `"own"`."""
    return str(getattr(selector, "kind", "own"))


def save_selector(file: Path, selector: Selector, arrays: Arrays) -> None:
    """Write what the selector is made of, and `arrays` beside it; no file where there is nothing to write.

    The nearest selector is made of the observed embeddings, which are saved anyway. Code is not written: a
    selector that calls a function is given again to `load_selector`.
    """
    if isinstance(selector, ClusterSelector):
        arrays = {**arrays, "centroids": selector.centroids}
    if arrays:
        save_arrays(file, arrays)


def load_selector(file: Path, kind: str, given: Selector | None) -> tuple[Selector | None, Arrays]:
    """The selector of a folder (None for the nearest), and the arrays that stood beside it.

    Args:
        file: As `save_selector` wrote it; may be absent.
        kind: As `selector_kind` named it.
        given: Used in its place when not None.
    """
    arrays = load_arrays(file) if file.is_file() else {}
    if given is not None:
        return given, arrays
    if kind == NearestSelector.kind:
        return None, arrays
    if kind == ClusterSelector.kind:
        return ClusterSelector(arrays["centroids"]), arrays
    raise ModelError(
        "The model's selector calls a function, which no folder can hold",
        got=f"a selector of kind {kind!r}",
        expected="the selector it was saved with",
        fix="pass it again: Emmett.load(folder, selector=...)",
    )
