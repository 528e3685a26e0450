"""The index that scans 4-bit codes and looks at the vectors of a shortlist only.

Codes find the shortlist (`metaxc.index.codes`), exact inner products rank it, so a score is always exact and only
membership is approximate. Inserts, updates and removals change the codes in place: nothing dead is left to scan, so
recall after any churn is that of a fresh build.

The codes are trained on a sample of the vectors. When what was added since fits them badly, new ones are trained
and filled beside the old, in a thread of their own, and swapped in; searches and changes go on meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar

import numpy as np

from metaxc.arrays import Floats, Keys, Rows
from metaxc.extras import import_extra
from metaxc.index.codes import Codes
from metaxc.index.files import write_index
from metaxc.index.lock import SharedLock
from metaxc.index.ranking import best, padded, ranked
from metaxc.index.slots import Slots, validate_k, validate_keys, validate_vectors

SHORTLIST = 400
"""Candidates per query that are ranked exactly; ten per answer where more than 40 are asked for. At 100,000 × 384,
recall@10 with 50, 200, 400: 0.94, 0.994, 0.999 on text embeddings with varied norms, 0.85, 0.98, 0.997 on random
gaussian vectors, the worst case; a query takes 0.39, 0.49, 0.58 ms (one thread)."""

TRAINED_ON = 8192
"""Vectors in the sample that codes are trained on, 0.8 s; 20,000 take longer and give no better recall. They are drawn
by squared length, for the long ones are those that are answered: with norms spread by a lognormal of σ = 0.6 over
text embeddings, recall@10 is 1.000 with a shortlist of 100, against 0.90 for a plain sample."""

TYPICAL = 2048
"""Vectors of a plain sample, by which is judged how well the codes fit."""

FEWEST = 5_000
"""Vectors from which on there are codes; below, all vectors are looked at. Measured with 384 dimensions on one thread,
median of a single query: exact 0.14, 0.23, 1.0, 1.4 ms and codes 0.17, 0.21, 0.20, 0.22 ms at 3,000, 5,000, 7,000,
10,000 vectors."""

FEW_ALLOWED = 1000
"""Where a filter leaves no more, these are looked at one and all."""

LARGEST_SHARE = 4
"""A shortlist of more than a quarter of all vectors is not worth a scan."""

MARGIN = 1.5
"""With a filter the shortlist is enlarged by what the filter leaves out, and by this."""

CHUNK = 1024
"""Vectors that a rebuild encodes between two looks at the lock, and queries that are scanned at once."""


class ScanIndex:
    """Approximate search by 4-bit codes with exact scores. See `metaxc.index.protocol.Index` for the methods.

    Needs faiss, from the extra `serve`.

    Args:
        dim: Length of a vector.
        seed: Of the training of the codes.
    """

    kind: ClassVar[str] = "scan"

    def __init__(self, dim: int, seed: int = 0):
        self._faiss = import_extra("faiss", "serve")
        self.dim = dim
        self.seed = seed
        self._slots = Slots(dim)
        self._lock = SharedLock()
        self._codes: Codes | None = None
        self._changed: set[int] | None = None  # slots that changed since a rebuild began
        self._rebuild: Thread | None = None
        self._one_rebuild = Lock()

    def __len__(self) -> int:
        return self._slots.count

    def __contains__(self, key: int) -> bool:
        return key in self._slots

    def __repr__(self) -> str:
        how = "no codes yet" if self._codes is None else "4-bit codes"
        return f"ScanIndex({len(self):,} vectors of {self.dim} dimensions, {how})"

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add or replace. The first vectors of an index are coded at once, before the call returns."""
        keys = validate_keys(keys)
        vectors = validate_vectors(vectors, self.dim, len(keys))
        codes = self._codes
        encoded = None if codes is None else codes.encoded(vectors)
        with self._lock.writing():
            first = self._slots.count == 0
            slots = self._slots.put(keys, vectors)
            if self._codes is not None:
                if self._codes is not codes or encoded is None:  # swapped since
                    encoded = self._codes.encoded(vectors)
                self._codes.put(slots, encoded)
                self._codes.noted(encoded)
            if self._changed is not None:
                self._changed.update(slots.tolist())
        self._rebuild_if_due(aside=not first)

    def remove(self, keys: Keys) -> None:
        """Remove; unknown keys are refused."""
        keys = validate_keys(keys)
        with self._lock.writing():
            holes, moved = self._slots.drop(keys)
            if self._codes is not None:
                self._codes.move(moved, holes)
                self._codes.truncate(self._slots.count)
            if self._changed is not None:
                self._changed.update(holes.tolist())

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """The k best keys of each query; a filter never makes the answer short."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            slots, codes = self._slots, self._codes
            among = None if allowed is None else slots.known(np.asarray(allowed, np.int64))
            wanted = ask = max(SHORTLIST, 10 * k)
            if among is not None:
                ask = int(MARGIN * wanted * slots.count / max(1, len(among)))
            few = among is not None and len(among) <= FEW_ALLOWED
            if codes is None or few or ask * LARGEST_SHARE > slots.count:
                return best(slots, queries, k, among)
            return self._scanned(codes, queries, k, wanted, ask, among)

    def search_exactly(self, vectors: Floats, k: int) -> tuple[Keys, Floats]:
        """The k best keys of each query, without the codes."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            return best(self._slots, queries, k)

    def vectors_of(self, keys: Keys) -> Floats:
        """Vectors by key."""
        with self._lock.reading():
            return self._slots.vectors[self._slots.of(np.asarray(keys, np.int64))]

    def save(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the folder; the index may change meanwhile, the folder holds it as it was at the call."""
        with self._lock.reading():
            keys, vectors = self._slots.contents()
            codes = None if self._codes is None else self._codes.arrays()
        write_index(folder, self.kind, keys, vectors, facts, codes)

    @classmethod
    def of(cls, keys: Keys, vectors: Floats, codes: Codes | None = None) -> ScanIndex:
        """An index of vectors that were checked before; codes that are missing are made now."""
        index = cls(vectors.shape[1])
        index._slots.put(keys, vectors)
        index._codes = codes
        index._rebuild_if_due(aside=False)
        return index

    def wait(self) -> None:
        """Return when no rebuild is under way."""
        rebuild = self._rebuild
        if rebuild is not None:
            rebuild.join()

    def _scanned(
        self, codes: Codes, queries: Floats, k: int, wanted: int, ask: int, among: Rows | None
    ) -> tuple[Keys, Floats]:
        """Rank a shortlist of `ask` per query, of which at least `wanted` must be allowed; else look at all."""
        slots = self._slots
        keys, scores = padded(len(queries), k)
        mask, odd = None, codes.odd
        if among is not None:
            mask = np.zeros(slots.count, np.bool_)
            mask[among] = True
            odd = odd[mask[odd]]
        unsure: list[int] = []
        for start in range(0, len(queries), CHUNK):
            found, rough = codes.search(queries[start : start + CHUNK], ask)
            for at, (shortlist, guesses) in enumerate(zip(found, rough, strict=True), start):
                whole, cut = shortlist[-1] >= 0, guesses[-1]
                if mask is not None:
                    kept = mask[shortlist]
                    shortlist, guesses = shortlist[kept], guesses[kept]
                if not whole or len(shortlist) < wanted:
                    unsure.append(at)
                    continue
                if len(odd):
                    kept = ~codes.is_odd[shortlist]
                    shortlist = np.concatenate([shortlist[kept], odd])
                    guesses = np.concatenate([guesses[kept], np.full(len(odd), np.inf, np.float32)])
                order, scores[at] = ranked(slots, queries[at], shortlist, k)
                keys[at] = slots.keys[shortlist[order]]
                if guesses[order[-1]] <= cut:  # its twins may have been cut off
                    unsure.append(at)
        if unsure:
            keys[unsure], scores[unsure] = best(slots, queries[unsure], k, among)
        return keys, scores

    def _rebuild_if_due(self, aside: bool) -> None:
        codes, count = self._codes, self._slots.count
        due = count >= FEWEST and (codes is None or codes.worn())
        if not due or not self._one_rebuild.acquire(blocking=False):
            return
        if not aside:
            self._rebuilt()
            return
        # Not a daemon: a process that ends waits the second that it takes, rather than stop it inside faiss.
        self._rebuild = Thread(target=self._rebuilt_aside, name="index-rebuild")
        self._rebuild.start()

    def _rebuilt_aside(self) -> None:
        self._faiss.omp_set_num_threads(1)  # of this thread only: the other cores are for the searches
        self._rebuilt()

    def _rebuilt(self) -> None:
        """Train new codes on a sample, fill them beside the old ones, and swap."""
        try:
            with self._lock.writing():
                self._changed = set()
            with self._lock.reading():
                sample, typical = self._samples()
            codes = Codes.trained(sample, typical, self.seed)
            while self._filled(codes):
                pass
            with self._lock.writing():
                self._catch_up(codes)
                self._codes = codes
        finally:
            self._changed = None
            self._one_rebuild.release()

    def _samples(self) -> tuple[Floats, Floats]:
        """Vectors to train codes on, and vectors to judge them by."""
        vectors = self._slots.vectors[: self._slots.count]
        random = np.random.default_rng(self.seed)
        bounds = np.cumsum(np.vecdot(vectors, vectors) + np.float32(1e-12), dtype=np.float64)
        drawn = np.searchsorted(bounds, random.random(min(TRAINED_ON, len(vectors))) * bounds[-1])
        typical = random.permutation(len(vectors))[:TYPICAL]
        return vectors[np.minimum(drawn, len(vectors) - 1)], vectors[typical]

    def _filled(self, codes: Codes) -> bool:
        """Code the next few vectors; whether there were any."""
        start = len(codes)
        with self._lock.reading():
            chunk = self._slots.vectors[start : min(start + CHUNK, self._slots.count)].copy()
        if len(chunk):
            codes.put(np.arange(start, start + len(chunk)), codes.encoded(chunk))
        return len(chunk) > 0

    def _catch_up(self, codes: Codes) -> None:
        """Code what changed while the codes were filled."""
        count = self._slots.count
        codes.truncate(count)
        late: set[int] = {slot for slot in self._changed or () if slot < len(codes)}
        rows: Rows = np.array([*sorted(late), *range(len(codes), count)], np.int64)
        codes.put(rows, codes.encoded(self._slots.vectors[rows]))
