"""The catalog that is served: a switch to another model replaces it, and who uses the old one finishes with it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from metaxc.catalog import Catalog


class ServedCatalog:
    """Holds the catalog that requests use.

    Args:
        catalog: The first one.
    """

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._uses: Counter[int] = Counter()
        self._changed = threading.Condition()

    @property
    def catalog(self) -> Catalog:
        """The present catalog, for the thread of the write queue, which is the one that replaces it."""
        return self._catalog

    @contextmanager
    def use(self) -> Iterator[Catalog]:
        """The present catalog, which stays open until the block ends."""
        with self._changed:
            catalog = self._catalog
            self._uses[id(catalog)] += 1
        try:
            yield catalog
        finally:
            with self._changed:
                self._uses[id(catalog)] -= 1
                self._changed.notify_all()

    def replace(self, new: Catalog) -> None:
        """Use another catalog from now on."""
        with self._changed:
            self._catalog = new

    def wait_until_unused(self, old: Catalog) -> None:
        """Wait until nobody uses a catalog that was replaced, so that it can be closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._uses[id(old)])
            del self._uses[id(old)]
