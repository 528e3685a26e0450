"""The results of a search, and how results and explanations look in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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
