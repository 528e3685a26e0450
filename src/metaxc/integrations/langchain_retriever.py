"""A LangChain retriever over a running metaxc service; needs the extra `langchain`.

retriever = MetaxcRetriever(url="http://127.0.0.1:8765", k=5)
retriever.invoke("marathon gear")
retriever.invoke("marathon gear", tags=["shoes"], filter={"field": "price", "lt": 20}, exposure=0.3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr

from metaxc.catalog.records import State
from metaxc.integrations.service_search import ServiceSearch, describe_hit
from metaxc.serve.client import Client


class MetaxcRetriever(BaseRetriever):
    """Documents are the items of a live catalog: `id`, `page_content`, and metadata with `score`, `state`, `tags`
    and `fields`.

    The settings may be replaced in each call of `invoke` and `ainvoke` by arguments of the same names.
    """

    model_config = ConfigDict(extra="forbid")

    url: str = Field(description="The address of the service, for example http://127.0.0.1:8765.")
    token: SecretStr | None = Field(None, description="The read token, if the service requires one.")
    k: int = Field(10, description="Number of items per query.")
    tags: tuple[str, ...] = Field((), description="Return only items that have all of these tags.")
    states: tuple[State, ...] = Field((), description="Return only items in one of these states.")
    filter: dict[str, Any] | None = Field(
        None, description='Return only items that pass this filter, such as {"field": "price", "lt": 20}.'
    )
    exposure: float | None = Field(
        None,
        description="Added to the score of an item without clicks; None for the value chosen in training.",
    )
    timeout: float = Field(60.0, description="Seconds to wait for a response.")
    _client: Client = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Open the client."""
        super().model_post_init(context)
        token = None if self.token is None else self.token.get_secret_value()
        self._client = Client(self.url, token, timeout=self.timeout)

    def close(self) -> None:
        """Close the connections to the service."""
        self._client.close()

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        tags: Sequence[str] | None = None,
        states: Sequence[State] | None = None,
        filter: Mapping[str, Any] | None = None,
        exposure: float | None = None,
    ) -> list[Document]:
        search = ServiceSearch(self._client, self.k, self.tags, self.states, self.filter, self.exposure)
        return [
            Document(id=hit.id, page_content=hit.text, metadata={"score": hit.score, **describe_hit(hit)})
            for hit in search.search(query, k, tags, states, filter, exposure)
        ]
