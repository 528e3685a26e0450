"""A Haystack component over a running metaxc service; needs the extra `haystack`.

pipeline = Pipeline()
pipeline.add_component("retriever", MetaxcRetriever("http://127.0.0.1:8765", top_k=5))
asked = {"query": "marathon gear", "tags": ["shoes"], "filter": {"field": "price", "lt": 20}}
pipeline.run({"retriever": asked})["retriever"]["documents"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.utils import Secret

from metaxc.catalog.records import State
from metaxc.integrations.service_search import ServiceSearch, describe_hit
from metaxc.serve.client import Client


@component
class MetaxcRetriever:
    """Documents are the items of a live catalog, with their scores; `meta` has `state`, `tags` and `fields`.

    Args:
        url: The address of the service, for example http://127.0.0.1:8765.
        token: The read token, if the service requires one: `Secret.from_env_var("METAXC_READ_TOKEN")` can be saved with
            a pipeline, `Secret.from_token("…")` cannot.
        top_k: Number of documents per query.
        tags: Return only items that have all of these tags.
        states: Return only items in one of these states; empty returns all.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        timeout: Seconds to wait for a response.
        filter: Return only items that pass this filter of the service, such as `{"field": "price", "lt": 20}`; None
            returns all. It is not written in Haystack's own filter language.
    """

    def __init__(
        self,
        url: str,
        token: Secret | None = None,
        top_k: int = 10,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        exposure: float | None = None,
        timeout: float = 60.0,
        filter: dict[str, Any] | None = None,
    ):
        self.url, self.token, self.timeout = url, token, timeout
        client = Client(url, None if token is None else token.resolve_value(), timeout=timeout)
        self._search = ServiceSearch(client, top_k, tags, states, filter, exposure)

    def close(self) -> None:
        """Close the connections to the service."""
        self._search.client.close()

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        top_k: int | None = None,
        tags: list[str] | None = None,
        states: list[str] | None = None,
        exposure: float | None = None,
        filter: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The best items of a query; arguments that are given replace those of the component."""
        hits = self._search.search(query, top_k, tags, states, filter, exposure)  # type: ignore[arg-type]
        documents = [
            Document(id=hit.id, content=hit.text, score=hit.score, meta=describe_hit(hit)) for hit in hits
        ]
        return {"documents": documents}

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack saves it with a pipeline."""
        search = self._search
        saved: dict[str, Any] = default_to_dict(
            self,
            url=self.url,
            token=None if self.token is None else self.token.to_dict(),
            top_k=search.k,
            tags=list(search.tags),
            states=list(search.states),
            exposure=search.exposure,
            timeout=self.timeout,
            filter=None if search.filter is None else dict(search.filter),
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MetaxcRetriever:
        """The component that `to_dict` saved."""
        token = data["init_parameters"].get("token")
        if isinstance(token, dict):
            parameters = {**data["init_parameters"], "token": Secret.from_dict(token)}
            data = {**data, "init_parameters": parameters}
        made: MetaxcRetriever = default_from_dict(cls, data)
        return made
