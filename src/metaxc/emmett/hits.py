"""The results of a search, and how results and explanations look in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data import Texts
from metaxc.index.array_search import ArraySearch
from metaxc.metrics import hits, without_pairs

SHORT = 60
"""Characters of a text that a one-line representation shows."""


@dataclass(frozen=True, repr=False)
class Hit:
    """One result of a search."""

    id: str
    text: str
    score: float
    novel: bool

    def __repr__(self) -> str:
        return f"Hit({self.id!r}, {shorten(self.text)!r}, {self.score:.3f}{', novel' if self.novel else ''})"


class Hits(list[Hit]):
    """The results for one query, best first: a list that prints one line per result."""

    def __repr__(self) -> str:
        lines = [
            f"{place:>3}. {hit.score:.3f} {'novel ' if hit.novel else ''}{hit.id}: {shorten(hit.text)}"
            for place, hit in enumerate(self, start=1)
        ]
        return "\n".join([f"Hits({len(self)})", *lines])

    def _repr_html_(self) -> str:
        rows = [[f"{hit.score:.3f}", "novel" if hit.novel else "", hit.id, hit.text] for hit in self]
        return html_table(f"{len(self)} hits", ["score", "", "id", "item"], rows)


def list_hits(rows: Rows, scores: Floats, items: Texts, novel: Mask) -> list[Hits]:
    """The results of each query, best first; row −1 is no result.

    Args:
        rows: (queries, k) rows of `items`.
        scores: (queries, k) their scores.
        items: The items.
        novel: (items,) bool, the novel ones.
    """
    return [
        Hits(
            Hit(items.ids[row], items.texts[row], float(score), bool(novel[row]))
            for row, score in zip(line, line_scores, strict=True)
            if row >= 0
        )
        for line, line_scores in zip(rows, scores, strict=True)
    ]


def top_k_except(
    search: ArraySearch, queries: Floats, k: int, hidden: Mask | None, excluded: csr_array
) -> tuple[Rows, Floats]:
    """The k best rows of each query and their scores, without some query-item pairs; −1 and −inf pad.

    Args:
        search: Finds vectors.
        queries: (n, dim) float32.
        k: Number of results; fewer where there are fewer vectors.
        hidden: (m,) bool, the vectors that may not be returned; None for none.
        excluded: (n, m), not 0 for pairs that are left out.
    """
    more = int(np.diff(excluded.indptr).max(initial=0))
    rows, scores = search.search(queries, min(k + more, len(search.vectors)), hidden)
    scores = -np.sort(-np.where(hits(rows, excluded), -np.inf, scores), axis=1)
    return without_pairs(rows, excluded)[:, :k], scores[:, :k]


def shorten(text: str) -> str:
    """At most `SHORT` characters of a text."""
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def html_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table for notebooks; all texts are escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    head = line("th", columns) if any(columns) else ""
    body = "".join(line("td", row) for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"
