"""What the retrievers share: one search of one query, with settings that a single call may replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metaxc.catalog.records import CatalogHit, State
from metaxc.serve.client import Client


@dataclass(frozen=True)
class ServiceSearch:
    """Searches one service.

    Args:
        client: The client of the service.
        k: Number of items per query.
        tags: Return only items that have all of these tags.
        states: Return only items in one of these states; empty returns all.
        filter: Return only items that pass this filter, such as `{"field": "price", "lt": 20}`; None returns all.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
    """

    client: Client
    k: int = 10
    tags: Sequence[str] = ()
    states: Sequence[State] = ()
    filter: Mapping[str, Any] | None = None
    exposure: float | None = None

    def search(
        self,
        query: str,
        k: int | None = None,
        tags: Sequence[str] | None = None,
        states: Sequence[State] | None = None,
        filter: Mapping[str, Any] | None = None,
        exposure: float | None = None,
    ) -> tuple[CatalogHit, ...]:
        """The best items of a query, best first; None in an argument stands for the value of this object."""
        response = self.client.search(
            [query],
            self.k if k is None else k,
            tags=self.tags if tags is None else tags,
            states=self.states if states is None else states,
            filter=self.filter if filter is None else filter,
            exposure=self.exposure if exposure is None else exposure,
        )
        return response.answers[0].hits


def describe_hit(hit: CatalogHit) -> dict[str, Any]:
    """What a framework's document says about an item beside its id, text and score."""
    return {"tags": list(hit.tags), "state": hit.state, "fields": dict(hit.fields)}
