"""Moving an open catalog to another model while it is searched and written to.

    switch = ModelSwitch(catalog, model)
    switch.build()                       # minutes; searches and writes go on
    compare_generations(catalog, switch.catalog)
    new = switch.finish()                # milliseconds; no write happens meanwhile
    catalog.close()                      # when nobody searches it any more
    switch.remove_unused()

The switch itself is one rename (`CatalogFolder.activate`). A process that is killed at any moment leaves the old or the
new generation in use, with every acknowledged write. The old generation is kept: switching back to its model brings it
up to date instead of building it again.
"""

from __future__ import annotations

from pathlib import Path

from metaxc.catalog.catalog import Catalog
from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.catalog_folder import WriterLock
from metaxc.catalog.generation_creation import resume_or_create
from metaxc.catalog.generation_record import MODEL_FOLDER
from metaxc.catalog.migration import Migration, Progress
from metaxc.emmett import Emmett

SWITCH_BLOCK = 64
"""Items per transaction of the build: as many texts as a slice of a request has (`QueueSettings.slice_texts`), so that
searches wait for the processor no longer than they do behind a large request."""

FEW_CHANGES = 32
"""Changed items that are left to the last round, during which writes wait."""

MOST_ROUNDS = 100
"""Rounds after which writes are known to come faster than the new model can follow; each has what was written during
the one before, so a dozen is usual."""


class ModelSwitch:
    """One switch of an open catalog to another model.

    Args:
        catalog: The catalog, open for writing.
        model: The new model.
        model_folder: The folder of the new model, by which a restarted service finds it.
        old_model_folder: The folder of the present model, by which a service finds it when it switches back; None
            where the catalog knows it or nobody does.
        progress: Called with the number of items done and their total; an exception stops the build.
    """

    def __init__(
        self,
        catalog: Catalog,
        model: Emmett,
        model_folder: Path | None = None,
        old_model_folder: Path | None = None,
        progress: Progress = lambda done, total: None,
    ):
        if model.fingerprint == catalog.model.fingerprint:
            raise CatalogError(
                "The catalog has this model already",
                got=f"model {model.fingerprint[:16]}",
                expected="another model",
                fix="train one, or keep this one",
            )
        self.old, self.progress = catalog, progress
        known = catalog.store.metadata.get(MODEL_FOLDER)
        self._old_model_folder = known if old_model_folder is None else str(old_model_folder.resolve())
        self._store = resume_or_create(catalog.folder, catalog.store, model, model_folder)
        self._migration = Migration(catalog.store, self._store, model, progress, SWITCH_BLOCK)
        self._model = model
        self._new: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The new generation, which can be searched once it is built."""
        assert self._new is not None
        return self._new

    def build(self) -> None:
        """Write the new generation and its index beside the old ones."""
        self._migration.write_all()
        self.catch_up()
        self._migration.refresh_vectors()
        self._new = Catalog(self.old.folder, self._store, self._model, WriterLock())
        self._new.warm()
        self._migration.use_follower(self._new.follower)
        self.catch_up()

    def catch_up(self) -> None:
        """Write what has changed meanwhile, until little is left."""
        for _ in range(MOST_ROUNDS):
            changes = self._migration.catch_up()
            if changes <= FEW_CHANGES:
                return
            done = len(self._migration.done)
            self.progress(done, done)
        raise CatalogError(
            "The catalog changes faster than the new model can follow",
            got=f"{changes:,} items changed during the last of {MOST_ROUNDS} rounds",
            expected="fewer writes than the new model can encode",
            fix="switch when fewer items and clicks arrive, or migrate the catalog while nobody writes",
        )

    def finish(self) -> Catalog:
        """Write what is left and use the new generation from now on; writes wait meanwhile. Returns its catalog, which
        has the right to write; the old one can still be searched."""
        with self.old.writes_held():
            self._migration.catch_up()
            self._migration.complete(self._old_model_folder)
            self.catalog.follower.catch_up()
            self.old.hand_over(self.catalog)
        return self.catalog

    def abandon(self) -> None:
        """Close the new generation without using it; another switch to its model continues it."""
        if self._new is not None:
            self._new.close()
        else:
            self._store.close()

    def remove_unused(self) -> None:
        """Remove all generations but the one in use and the one before."""
        self.old.folder.remove_others([self.catalog.store.folder, self.old.store.folder])
