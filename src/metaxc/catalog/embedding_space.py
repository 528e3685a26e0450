"""Whether a catalog's embeddings are in the space of another model's encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.generation_record import ENCODER
from metaxc.catalog.schema import decode_vectors
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.encoders import Vectors
from metaxc.errors import DataError

COMPARED = 1_000
"""Items with a vector in both that tell whether two sets of vectors are in one space."""

SAME_COSINE, SAME_SHARE = 0.99, 0.9
"""Two vectors of one text agree from this cosine on, and two sets where this share of them does: an item may have been
given another vector since. Vectors of two spaces are nearly orthogonal."""


def has_same_space(old: Store, model: Emmett) -> bool:
    """Whether the embeddings of a catalog are in the space of a model's encoder, so that a migration keeps them: those
    that callers have given as well.

    The same encoder has the same space. Two sets of your own vectors have it where they agree on the texts that they
    have in common; a model that was trained on a later export of the catalog is an example.
    """
    encoder = model.encoder
    if old.metadata.get(ENCODER) == encoder.fingerprint:
        return True
    if not isinstance(encoder, Vectors) or encoder.dim != old.dim:
        return False
    with old.read_snapshot(own_connection=True) as connection:
        rows = connection.execute("SELECT text, embedding FROM items ORDER BY key")
        common = list(islice((row for row in rows if encoder.has_item(row[0])), COMPARED))
    if not common:
        return False
    stored = decode_vectors((embedding for _, embedding in common), old.dim)
    cosines = (stored * encoder.encode_items([text for text, _ in common])).sum(axis=1)
    return bool((cosines >= SAME_COSINE).mean() >= SAME_SHARE)


@contextmanager
def vectors_required() -> Iterator[None]:
    """Say what to do where a model of your own vectors has none for an item or a query of the catalog."""
    try:
        yield
    except DataError as error:
        raise CatalogError(
            f"The catalog cannot be moved to this model: {error.what}",
            got=error.got,
            expected="a model whose vectors are in the space of the present ones, or that has vectors of all items and "
            "queries of the catalog",
            fix="export the catalog as a data set, compute the vectors of its items and queries, and train on them",
        ) from error
