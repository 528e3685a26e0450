"""The URL of a place in a vector store, and searches through it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from metaxc.arrays import Floats
from metaxc.catalog.generation_record import kept_models
from metaxc.catalog.given_vectors import encode_queries
from metaxc.catalog.item_queries import SAME_TEXTS, without_own
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.sync_target import SyncError, SyncState, SyncTarget, target_errors
from metaxc.emmett import Emmett
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.errors import ConfigError

FORMS = (
    "postgresql://USER@HOST/DATABASE[?table=NAME], milvus://HOST:PORT/NAME, qdrant://HOST:PORT/NAME, "
    "qdrant+local://FOLDER/NAME, lance://FOLDER/NAME or parquet://FOLDER"
)


def open_target(url: str) -> SyncTarget:
    """The place that a URL names; nothing is created or connected yet.

    Args:
        url: One of the forms in `FORMS`. The path of a folder is relative to the current one unless it begins with
            a slash: `lance:///data/vectors/items`.
    """
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres") and rest:
        from metaxc.catalog.sync.postgresql_target import PostgresqlTarget

        return PostgresqlTarget(url)
    if scheme == "parquet" and rest:
        from metaxc.catalog.sync.parquet_target import ParquetTarget

        return ParquetTarget(Path(rest))
    if scheme in ("lance", "qdrant+local"):
        folder, _, name = rest.rstrip("/").rpartition("/")
        if not folder or not name:
            raise _invalid_url(url)
        if scheme == "lance":
            from metaxc.catalog.sync.lance_target import LanceTarget

            return LanceTarget(Path(folder), name)
        from metaxc.catalog.sync.qdrant_target import QdrantTarget

        return QdrantTarget(folder, name, local=True)
    if scheme in ("milvus", "qdrant"):
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        secure = options.pop("secure", "false") == "true"
        name = parts.path.strip("/")
        if not parts.hostname or not name or options or "@" in parts.netloc:
            raise _invalid_url(url)
        if scheme == "milvus":
            from metaxc.catalog.sync.milvus_target import MilvusTarget

            return MilvusTarget(parts.netloc, name, secure)
        from metaxc.catalog.sync.qdrant_target import QdrantTarget

        return QdrantTarget(parts.netloc, name, secure=secure)
    raise _invalid_url(url)


def search_target(
    target: SyncTarget,
    model: Emmett,
    queries: Sequence[str | Floats] | Floats,
    k: int = 10,
    exposure: float | None = None,
    texts: Sequence[str] | None = None,
) -> list[list[CatalogHit]]:
    """The k best items of each query, best first, from a synchronised vector store.

    Args:
        target: The place in the vector store.
        model: The model of the catalog that was synchronised, or one with the same item side; another one is refused.
        queries: Texts, which the model encodes and expands; (dim,) embeddings, which it expands; or (dim + 1,) vectors
            with their exposure, as `CatalogReader.encode` returns them.
        k: Number of items per query.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        texts: The texts of queries that are given as vectors, as of `CatalogReader.search`.
    """
    with target_errors(target):
        tables, table = target.tables(), target.current()
        if table is None or table not in tables:
            raise SyncError(
                "Nothing was synchronised to this place, or not yet completely",
                got=target.label,
                expected="a place that `metaxc sync CATALOG --to URL` has filled",
                fix="check the URL, or run that command",
            )
        state = tables[table]
        vectors = encode_queries(list(queries), model, exposure)
        if not _has_item_vectors(state, model) or state.dim != vectors.shape[1]:
            raise SyncError(
                "The vector store holds vectors of another model",
                got=f"{target.label}: model {state.model[:16]}, {state.dim} numbers per vector",
                expected=f"model {model.fingerprint[:16]}, {vectors.shape[1]} numbers per vector",
                fix="search with that model, or replace the vectors: `metaxc sync CATALOG --to URL --cutover`",
            )
        more = k + SAME_TEXTS if model.exclude_self else k
        found = target.search(table, vectors, more, state.index)
    if not model.exclude_self:
        return found
    names = texts or [query if isinstance(query, str) else "" for query in queries]
    return [without_own(name, hits)[:k] for name, hits in zip(names, found, strict=True)]


def _has_item_vectors(state: SyncState, model: Emmett) -> bool:
    """Whether a model can search the vectors of a table. Tables of older versions name no item side: there the model
    must be the one that computed them, or say that it keeps the items of that one."""
    if state.model == model.fingerprint:
        return True
    return (
        state.model in kept_models(model)
        if state.item_side is None
        else state.item_side == item_fingerprint(model)
    )


def _invalid_url(url: str) -> ConfigError:
    return ConfigError(
        "Not a URL of a vector store",
        got=repr(url if "@" not in url else url.partition("://")[0] + "://…"),
        expected=FORMS,
        fix="a token or password of Milvus and Qdrant belongs in METAXC_MILVUS_TOKEN or METAXC_QDRANT_API_KEY",
    )
