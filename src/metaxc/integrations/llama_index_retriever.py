"""A LlamaIndex retriever over a running metaxc service; needs the extra `llama-index`.

retriever = MetaxcRetriever("http://127.0.0.1:8765", k=5, tags=["shoes"], filter={"field": "price", "lt": 20})
retriever.retrieve("marathon gear")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from metaxc.catalog.records import State
from metaxc.integrations.service_search import ServiceSearch, describe_hit
from metaxc.serve.client import Client


class MetaxcRetriever(BaseRetriever):
    """Nodes are the items of a live catalog, with their scores; the metadata has `state`, `tags` and `fields`.

    Args:
        url: The address of the service, for example http://127.0.0.1:8765.
        token: The read token, if the service requires one.
        k: Number of items per query.
        tags: Return only items that have all of these tags.
        states: Return only items in one of these states; empty returns all.
        filter: Return only items that pass this filter, such as `{"field": "price", "lt": 20}`; None returns all.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        timeout: Seconds to wait for a response.
        options: Those of LlamaIndex' `BaseRetriever`, such as `callback_manager`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        k: int = 10,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        filter: Mapping[str, Any] | None = None,
        exposure: float | None = None,
        timeout: float = 60.0,
        **options: Any,
    ):
        super().__init__(**options)
        self._search = ServiceSearch(Client(url, token, timeout=timeout), k, tags, states, filter, exposure)

    def close(self) -> None:
        """Close the connections to the service."""
        self._search.client.close()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(id_=hit.id, text=hit.text, metadata=describe_hit(hit)), score=hit.score
            )
            for hit in self._search.search(query_bundle.query_str)
        ]
