"""Many may read while nobody writes: searches run side by side, a change runs alone.

A writer that waits goes before readers that come later, so that a stream of searches cannot keep an insert out.
The lock is not re-entrant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class SharedLock:
    """`with lock.reading():` for any number of threads at once, `with lock.writing():` for one alone."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._readers = 0
        self._waiting = 0
        self._writes = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._changed:
            while self._writes or self._waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._waiting += 1
            try:
                while self._writes or self._readers:
                    self._changed.wait()
                self._writes = True
            finally:
                self._waiting -= 1
                if not self._writes:  # interrupted while it waited: let the readers behind it go on
                    self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writes = False
                self._changed.notify_all()
