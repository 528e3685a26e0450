"""Keeps a vector store equal to a live catalog: changed rows only, resumable, and safe against a kill at any moment.

A table holds the digest of each row and the sum of all of them, and so does the catalog. After the changed rows are
written, the two sums must be equal; where they are not, the history of the catalog was replaced or a crash has come
between rows and state, and all digests are compared. So no change is missed, whatever the write numbers say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from pydantic import BaseModel, ConfigDict, Field

from metaxc.catalog.generation_record import ITEM_SIDE, earlier_models
from metaxc.catalog.schema import TableChecksum
from metaxc.catalog.store import Store
from metaxc.catalog.sync.catalog_changes import (
    count_changes,
    read_all_digests,
    read_changes,
    read_rows,
)
from metaxc.catalog.sync.sync_check import RECALL_AT, measure_recall, sample_query_vectors
from metaxc.catalog.sync.sync_target import (
    IndexKind,
    SyncError,
    SyncRow,
    SyncState,
    SyncTarget,
    target_errors,
)
from metaxc.emmett import Emmett

Progress = Callable[[int, int], None]
"""Called with the number of changes done, and of all changes."""


class SyncSettings(BaseModel):
    """Settings of a synchronisation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # The vector stores' own default, except that PostgreSQL has none: there it is the index that needs no training.
    index: IndexKind = Field(
        "hnsw",
        description="Index of a table that is created now: hnsw answers fast and nearly exactly, exact compares every "
        "row. Lance, Parquet and Qdrant's local mode always compare every row",
    )
    # Below this, one in twenty of the ten best items is missing: a broken index, or one with too small parameters.
    min_recall: float = Field(
        0.95, ge=0, le=1, description="Recall@10 against exact answers below which a cutover is refused"
    )
    # 200 queries with ten items each give the recall to about one percent.
    sample: int = Field(200, ge=1, description="Queries that a cutover is checked with")
    seed: int = Field(0, ge=0, description="Random seed of that sample")


@dataclass(frozen=True)
class SyncReport:
    """What a synchronisation has done.

    Args:
        table: The table that now stands behind the name.
        upserted: Rows written.
        deleted: Rows deleted.
        sequence: The catalog's write number that the table has reached.
        compared: Whether all digests had to be compared.
        recall: Recall@10 of a cutover; None otherwise.
    """

    table: str
    upserted: int
    deleted: int
    sequence: int
    compared: bool
    recall: float | None = None


def sync_catalog(
    store: Store,
    target: SyncTarget,
    settings: SyncSettings | None = None,
    progress: Progress = lambda done, total: None,
    *,
    cutover: bool = False,
    compare: bool = False,
    model: Emmett | None = None,
) -> SyncReport:
    """Write what has changed in a catalog since the last synchronisation to a vector store.

    Args:
        store: The catalog's store; another process may write to it.
        target: The place in the vector store.
        settings: Settings; the index matters only where a table is created.
        progress: Called after each block of changes.
        cutover: Builds a new table beside the one in use, checks its recall, and then switches to it.
        compare: Compares all digests even where nothing seems to have changed: repairs what somebody else has
            changed in the table.
        model: With a cutover: the catalog's model, to check the recall with real queries.
    """
    settings = settings or SyncSettings()
    with target_errors(target), target.locked():
        return _Sync(store, target, settings, progress, compare).run(cutover, model)


def roll_back(target: SyncTarget) -> str:
    """Switch back to the table that the last cutover has replaced, and return its name."""
    with target_errors(target), target.locked():
        tables, current = target.tables(), target.current()
        before = tables[current].replaces if current in tables else None
        if before is None or before not in tables:
            raise SyncError(
                "There is no table to return to",
                got=f"{target.label}: {current or 'nothing'} in use",
                expected="a table that a cutover has replaced",
                fix="build another table with `metaxc sync CATALOG --to URL --cutover`",
            )
        target.switch(before)
        return before


class _Sync:
    def __init__(
        self, store: Store, target: SyncTarget, settings: SyncSettings, progress: Progress, compare: bool
    ):
        self.store, self.target, self.settings, self.progress = store, target, settings, progress
        self.upserted = self.deleted = self.done = self.total = self.sequence = 0
        self.must_compare, self.compared = compare, False

    def run(self, cutover: bool, model: Emmett | None) -> SyncReport:
        tables, current = self.target.tables(), self.target.current()
        if current is not None and not cutover:
            if current not in tables:
                raise _stateless(self.target, current)
            state = self._check_origin(tables[current])
            if state != tables[current]:
                self.target.apply(current, (), (), state)
            self._follow(current, state)
            self.target.finish(current)
            return self._report(current, None)
        table, state = self._resume_or_create(tables, current)
        state = self._follow(table, state)
        self.target.finish(table)
        recall = self._check_recall(table, state, model) if cutover else None
        self.target.switch(table)
        for other in self.target.tables():
            if other not in (table, current):
                self.target.drop(other)
        return self._report(table, recall)

    def _report(self, table: str, recall: float | None) -> SyncReport:
        return SyncReport(table, self.upserted, self.deleted, self.sequence, self.compared, recall)

    def _new_state(self, replaces: str | None) -> SyncState:
        return SyncState(
            catalog=self.store.uuid,
            model=self.store.metadata["model"],
            item_side=self.store.metadata.get(ITEM_SIDE),
            dim=self.store.vector_dim,
            exposure=self.store.exposure,
            index=self.settings.index,
            replaces=replaces,
            fields=True,
        )

    def _has_item_vectors(self, state: SyncState) -> bool:
        """Whether a table's vectors are those of the catalog's model, or of one with the same item side."""
        metadata, item_side = self.store.metadata, self.store.metadata.get(ITEM_SIDE)
        same = state.item_side is not None and state.item_side == item_side
        return same or state.model in (metadata["model"], *earlier_models(metadata))

    def _check_origin(self, state: SyncState) -> SyncState:
        """Raise unless a table holds vectors of this catalog and of the model that it has now. Returns the state with
        what that model says of queries."""
        metadata = self.store.metadata
        if state.catalog != self.store.uuid:
            raise SyncError(
                "The vector store holds another catalog under this name",
                got=f"{self.target.label}: catalog {state.catalog[:8]}",
                expected=f"catalog {self.store.uuid[:8]}",
                fix="use another name at the end of the URL, or replace it: add --cutover",
            )
        if not self._has_item_vectors(state) or state.dim != self.store.vector_dim:
            raise SyncError(
                "The vector store holds vectors of another model",
                got=f"{self.target.label}: model {state.model[:16]}, {state.dim} numbers per vector",
                expected=f"model {metadata['model'][:16]}, {self.store.vector_dim} numbers per vector",
                fix="add --cutover: the vectors of the new model are built beside the old ones, checked, and "
                "then take their place at once",
            )
        now = {"item_side": metadata.get(ITEM_SIDE), "exposure": self.store.exposure}
        return state.model_copy(update=now)

    def _resume_or_create(self, tables: dict[str, SyncState], current: str | None) -> tuple[str, SyncState]:
        """The table that a stopped or rolled back attempt with the same aims has begun, or a new one."""
        wanted, kept = self._new_state(current), {current}
        if current in tables:
            kept.add(tables[current].replaces)
        for table in sorted(set(tables) - kept):
            begun = tables[table]
            if self._has_item_vectors(begun):
                queries = {name: getattr(wanted, name) for name in ("model", "item_side", "exposure")}
                begun = begun.model_copy(update=queries)
            if begun.model_copy(update={"sequence": 0, "key": 0, "checksum": "0"}) == wanted:
                return table, begun
            self.target.drop(table)
        taken = {*tables, *kept}
        table = next(name for name in (f"{self.target.name}_{n}" for n in count(1)) if name not in taken)
        self.target.create(table, wanted)
        return table, wanted

    def _follow(self, table: str, state: SyncState) -> SyncState:
        """Write all changes to a table; returns its state, which then is that of the catalog."""
        self.done, self.total = 0, count_changes(self.store, state.sequence, state.key)
        compared = False
        while True:
            changes = read_changes(self.store, state.sequence, state.key, self.target.batch_rows)
            reached = state.model_copy(update={"sequence": changes.sequence, "key": changes.key})
            if changes.rows or changes.deleted:
                state = self._apply(table, changes.rows, changes.deleted, reached)
            elif self.must_compare or changes.checksum != state.checksum:
                if compared:
                    raise _foreign_writes(self.target)
                compared, self.compared, self.must_compare = True, True, False
                state = self._compare(table, state)
            else:
                if reached != state:
                    self.target.apply(table, (), (), reached)
                self.progress(self.done, self.done)
                self.sequence = reached.sequence
                return reached

    def _apply(
        self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], reached: SyncState
    ) -> SyncState:
        """Write a block of changes as far as the table does not have them, with the state that this leads to."""
        known = self.target.read_digests(table, [*(row.key for row in rows), *deleted])
        new = [row for row in rows if known.get(row.key) != row.digest]
        gone = [key for key in deleted if key in known]
        total = TableChecksum(reached.checksum)
        for key in [*(row.key for row in new if row.key in known), *gone]:
            total.remove(bytes.fromhex(known[key]))
        for row in new:
            total.add(bytes.fromhex(row.digest))
        state = reached.model_copy(update={"checksum": str(total)})
        self.target.apply(table, new, gone, state)
        self.upserted += len(new)
        self.deleted += len(gone)
        self.done += len(rows) + len(deleted)
        self.progress(self.done, max(self.done, self.total))
        return state

    def _compare(self, table: str, state: SyncState) -> SyncState:
        """Make a table equal to the catalog whatever it holds, by the digests of all rows."""
        sequence, wanted = read_all_digests(self.store)
        known = self.target.read_digests(table)
        total = TableChecksum()
        for digest in known.values():
            total.add(bytes.fromhex(digest))
        state = state.model_copy(update={"checksum": str(total)})
        gone = [key for key in known if key not in wanted]
        changed = [key for key, digest in wanted.items() if known.get(key) != digest]
        self.total = self.done + len(gone) + len(changed)
        step = self.target.batch_rows
        for start in range(0, len(gone), step):
            state = self._apply(table, (), gone[start : start + step], state)
        for start in range(0, len(changed), step):
            state = self._apply(table, read_rows(self.store, changed[start : start + step]), (), state)
        state = state.model_copy(update={"sequence": sequence, "key": 0})
        self.target.apply(table, (), (), state)
        return state

    def _check_recall(self, table: str, state: SyncState, model: Emmett | None) -> float:
        queries = sample_query_vectors(self.store, self.settings.sample, self.settings.seed, model)

        def catch_up() -> int:
            nonlocal state
            state = self._follow(table, state)
            return state.sequence

        recall = measure_recall(
            self.store,
            queries,
            lambda vectors, k: self.target.search(table, vectors, k, state.index),
            catch_up,
        )
        if recall < self.settings.min_recall:
            raise SyncError(
                "The new table does not answer well enough to be used",
                got=f"recall@{RECALL_AT} of {recall:.3f} over {len(queries)} queries in {table}",
                expected=f"{self.settings.min_recall:g} or more; the table in use was left as it is",
                fix="add --index exact, tune the index of that table, or accept less with --min-recall; "
                "then run the command again: it continues with the same table if the index is of the same kind",
            )
        return recall


def _stateless(target: SyncTarget, table: str) -> SyncError:
    return SyncError(
        "What stands under this name was not written by `metaxc sync`",
        got=f"{target.label}: {table}",
        expected="a table with a state",
        fix="use another name at the end of the URL",
    )


def _foreign_writes(target: SyncTarget) -> SyncError:
    return SyncError(
        "The table does not hold what was written to it",
        got=target.label,
        expected="a table that only `metaxc sync` writes to",
        fix="stop other programs that write to it, or build another table: add --cutover",
    )
