"""4-bit codes in inverted lists, so that a search scans the lists near its query and not all codes.

The codes are those of `metaxc.index.pq_codes`; only their places differ. faiss scans inverted lists of packed codes
(`IndexIVFPQFastScan`) but can neither replace a code nor remove one cheaply. So codes are written to and moved within
their lists here, one by one, with the packer of faiss: a removed code is replaced by the last one of its list. No
deleted code is left to scan, and after any changes the lists are those of a new index in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metaxc.arrays import Floats, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.errors import ModelError
from metaxc.index.list_layout import ListLayout, take_lists
from metaxc.index.pq_codes import Bytes, EncodedVectors, PQCodes, pad_to_even

RESERVOIR_SEARCH = 11
"""The implementation in faiss that scans for one query at a time and keeps candidates in a reservoir. Scanning 1,000
lists of 26 codes for a shortlist of 200 takes 0.28 ms of processor time, 0.75 ms with the default."""


@dataclass(frozen=True)
class ListedVectors(EncodedVectors):
    """Codes, errors and lengths of vectors, and the list (n,) of each."""

    lists: Rows


class IVFCodes(PQCodes):
    """4-bit codes of rows 0 … len − 1, each in the list of its vector. Not thread-safe, like `PQCodes`.

    Args:
        codes: Trained codes without rows, which encode vectors.
        layout: The lists.
    """

    def __init__(self, codes: PQCodes, layout: ListLayout):
        super().__init__(codes.dim, codes.codec, codes.fit)
        faiss = self._faiss
        self.layout = layout
        self.sizes: Rows = np.zeros(len(layout), np.int64)
        """(lists,) codes in each list."""
        self._count = 0
        self._list_of = np.empty(0, np.int32)
        self._place_of = np.empty(0, np.int32)
        width = self._index.d
        self._quantizer = faiss.IndexFlatIP(
            width
        )  # the layout chooses lists; faiss only insists on having one
        self._scanner = faiss.IndexIVFPQFastScan(
            self._quantizer, width, len(layout), width // 2, 4, faiss.METRIC_INNER_PRODUCT
        )
        centroids = faiss.vector_to_array(self._index.pq.centroids)
        faiss.copy_array_to_vector(centroids, self._scanner.pq.centroids)
        self._scanner.is_trained = True
        self._scanner.implem = RESERVOIR_SEARCH
        self._packer = self._scanner.get_CodePacker()
        self._lists = self._scanner.invlists

    def __len__(self) -> int:
        return self._count

    def encode(self, vectors: Floats) -> ListedVectors:
        """Encode vectors (n, dim) for `write`; needs no lock."""
        encoded = super().encode(vectors)
        return ListedVectors(encoded.codes, encoded.errors, encoded.lengths, self.layout.assign(vectors))

    def write(self, rows: Rows, encoded: EncodedVectors) -> None:
        """Write codes to rows (n,); rows beyond the end must follow it without a gap."""
        if not isinstance(encoded, ListedVectors):
            raise TypeError(f"Vectors encoded without lists: {type(encoded).__name__}")
        if not len(rows):
            return
        for row in rows[rows < self._count].tolist():
            self._drop(row)
        self._reserve(int(rows.max()) + 1)
        self._append(rows, encoded.codes, encoded.lists)
        is_outlier = self._exceeds_training_error(encoded)
        if is_outlier.any() or self.is_outlier[rows].any():
            self.is_outlier[rows] = is_outlier
            self._find_outliers()

    def copy_rows(self, sources: Rows, targets: Rows) -> None:
        """Move codes from rows to other rows; the sources must be truncated next."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._drop(target)
            number, place = int(self._list_of[source]), int(self._place_of[source])
            self._ids(number)[place] = target
            self._list_of[target], self._place_of[target] = number, place
            self._list_of[source] = -1
        self.is_outlier[targets] = self.is_outlier[sources]

    def truncate(self, count: int) -> None:
        """Keep the first `count` rows."""
        for row in range(count, self._count):
            self._drop(row)
        self._count = min(count, self._count)
        self._scanner.ntotal = self._count
        self.is_outlier[self._count :] = False
        self._find_outliers()

    def rows_of_list(self, row: int) -> Rows:
        """All rows in the list of a row."""
        return self._ids(int(self._list_of[row])).copy()

    def lists_of(self, rows: Rows) -> Rows:
        """The list of each row, an array of the same shape."""
        return self._list_of[rows].astype(np.int64)

    def count_allowed(self, is_allowed: Mask) -> Rows:
        """(lists,) rows of each list that a mask (count,) allows."""
        return np.bincount(self._list_of[: self._count][is_allowed], minlength=len(self.layout))

    def search_lists(
        self, queries: Floats, k: int, scanned: int, is_allowed: Mask | None = None
    ) -> tuple[Rows, Floats]:
        """Find the k largest approximate inner products of each query in the lists nearest to it.

        Args:
            queries: (n, dim) float32.
            k: Number of results.
            scanned: Lists are scanned until they hold this many codes that are allowed.
            is_allowed: (count,) bool, the rows that may be returned; all if None.

        Returns:
            rows (n, k), padded with −1, and approximate scores (n, k), best first.
        """
        faiss, count = self._faiss, len(queries)
        sizes = self.sizes if is_allowed is None else self.count_allowed(is_allowed)
        chosen = [take_lists(scores, sizes, scanned) for scores in self.layout.score_lists(queries)]
        probes = max((len(lists) for lists in chosen), default=0)
        lists = np.full((count, probes), -1, np.int64)
        for line, found in zip(lists, chosen, strict=True):
            line[: len(found)] = found
        rows, scores = np.full((count, k), -1, np.int64), np.full((count, k), -np.inf, np.float32)
        if not probes:
            return rows, scores
        options: dict[str, Any] = {"nprobe": probes}
        if is_allowed is not None:
            bits = np.packbits(is_allowed, bitorder="little")
            options["sel"] = faiss.IDSelectorBitmap(bits)
        padded, unused = pad_to_even(queries), np.zeros((count, probes), np.float32)
        self._scanner.search_preassigned_c(
            count,
            faiss.swig_ptr(padded),
            k,
            faiss.swig_ptr(lists),
            faiss.swig_ptr(unused),
            faiss.swig_ptr(scores),
            faiss.swig_ptr(rows),
            False,
            faiss.SearchParametersIVF(**options),
        )
        return rows, scores

    def to_arrays(self) -> Arrays:
        """The arrays that `from_arrays` restores the codes from."""
        filled = np.flatnonzero(self.sizes).tolist()
        blocks = [self._blocks_of(number) for number in filled]
        rows = [self._ids(number) for number in filled]
        return {
            **super().to_arrays(),
            **self.layout.to_arrays(),
            "sizes": self.sizes,
            "blocks": np.concatenate(blocks) if blocks else np.empty((0, self._packer.block_size), np.uint8),
            "rows": np.concatenate(rows).astype(np.int64) if rows else np.empty(0, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, dim: int, count: int) -> IVFCodes:
        """Restore codes whose checksum has been verified; codes of other vectors are a `ModelError`."""
        codec = PQCodes.from_arrays({**arrays, "odd": np.empty(0, np.int64)}, dim, 0)
        try:
            codes = cls(codec, ListLayout.from_arrays(arrays, dim))
            sizes, rows, blocks = arrays["sizes"].astype(np.int64), arrays["rows"], arrays["blocks"]
            if sizes.shape != codes.sizes.shape or sizes.min(initial=0) < 0 or sizes.sum() != count:
                raise ValueError(f"{sizes.sum():,} codes in {len(sizes):,} lists for {count:,} vectors")
            if not np.array_equal(np.sort(rows), np.arange(count)):
                raise ValueError("the lists do not hold each row once")
            codes._fill(sizes, rows, blocks)
            codes.is_outlier[arrays["odd"]] = True
        except (KeyError, IndexError, ValueError) as problem:
            raise ModelError(
                "The codes do not belong to the vectors of the index",
                got=str(problem),
                expected=f"codes of {count:,} vectors of {dim} dimensions",
                fix="build the index again",
            ) from problem
        codes._find_outliers()
        return codes

    def _fill(self, sizes: Rows, rows: Rows, blocks: Bytes) -> None:
        """Put packed blocks into empty lists, all at once."""
        self._reserve(len(rows))
        starts = np.cumsum(sizes) - sizes
        block_counts = -(-sizes // self._packer.nvec)
        if blocks.shape != (block_counts.sum(), self._packer.block_size):
            raise ValueError(f"{blocks.shape} blocks of codes for {block_counts.sum():,} blocks in the lists")
        block_starts = np.cumsum(block_counts) - block_counts
        self._list_of[rows] = np.repeat(np.arange(len(sizes)), sizes)
        self._place_of[rows] = np.arange(len(rows)) - np.repeat(starts, sizes)
        for number in np.flatnonzero(sizes).tolist():
            self._resize_list(number, int(sizes[number]))
            self._ids(number)[:] = rows[starts[number] : starts[number] + sizes[number]]
            first = block_starts[number]
            self._blocks_of(number)[:] = blocks[first : first + block_counts[number]]

    def _append(self, rows: Rows, codes: Bytes, lists: Rows) -> None:
        order = np.argsort(lists, kind="stable")
        bounds = np.flatnonzero(np.diff(lists[order], prepend=-1, append=-1))
        per_block = self._packer.nvec
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            group = order[start:end]
            number = int(lists[group[0]])
            first = int(self.sizes[number])
            self._resize_list(number, first + len(group))
            blocks = self._blocks_of(number)
            for place, code in enumerate(codes[group], first):
                block = place // per_block
                self._packer.pack_1(code, place % per_block, blocks[block : block + 1])
            self._ids(number)[first:] = rows[group]
            self._list_of[rows[group]] = number
            self._place_of[rows[group]] = np.arange(first, first + len(group))

    def _drop(self, row: int) -> None:
        """Remove a row's code from its list; the last code of the list takes its place."""
        number, place = int(self._list_of[row]), int(self._place_of[row])
        if number < 0:  # moved to another row
            return
        last = int(self.sizes[number]) - 1
        if place != last:
            blocks, ids, per_block = self._blocks_of(number), self._ids(number), self._packer.nvec
            source, target = last // per_block, place // per_block
            code = self._packer.unpack_1(blocks[source : source + 1], last % per_block)
            self._packer.pack_1(code, place % per_block, blocks[target : target + 1])
            ids[place] = ids[last]
            self._place_of[ids[last]] = place
        self._resize_list(number, last)
        self._list_of[row] = -1

    def _reserve(self, count: int) -> None:
        """Count rows 0 … count − 1 from now on."""
        capacity = len(self._list_of)
        if count > capacity:
            more = (0, max(count, capacity + capacity // 4) - capacity)
            self._list_of = np.pad(self._list_of, more, constant_values=-1)
            self._place_of = np.pad(self._place_of, more)
            self.is_outlier = np.pad(
                self.is_outlier[:capacity], (0, len(self._list_of) - len(self.is_outlier))
            )
        self._count = max(self._count, count)
        self._scanner.ntotal = self._count

    def _resize_list(self, number: int, size: int) -> None:
        self._lists.resize(number, size)
        self.sizes[number] = size

    def _blocks_of(self, number: int) -> Bytes:
        """A view (blocks, bytes) of the packed codes of a list that is not empty, valid until it is resized."""
        blocks = -(-int(self.sizes[number]) // self._packer.nvec)
        view = self._faiss.rev_swig_ptr(self._lists.get_codes(number), blocks * self._packer.block_size)
        return np.asarray(view.reshape(blocks, -1))

    def _ids(self, number: int) -> Rows:
        """A view of the rows of a list that is not empty, valid until it is resized."""
        return np.asarray(self._faiss.rev_swig_ptr(self._lists.get_ids(number), int(self.sizes[number])))


def train_ivf_codes(
    sample: Floats, fit_sample: Floats, layout_sample: Floats, directions: int, seed: int
) -> IVFCodes:
    """Train codes on a sample, measure their error on another one, and find the lists on a third (each (n, dim))."""
    return IVFCodes(
        PQCodes.train(sample, fit_sample, seed), ListLayout.train(layout_sample, directions, seed)
    )
