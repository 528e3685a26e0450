"""The service from Python: the catalog's verbs, records and errors, over HTTP.

with Client("http://127.0.0.1:8765") as client:
    client.add([NewItem("a", "a red chair")])
    client.search(["somewhere to sit"])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from metaxc.catalog.catalog_errors import ConflictError, NotFoundError, StorageError
from metaxc.catalog.records import (
    AddResult,
    CatalogSummary,
    Click,
    Item,
    ItemExplanation,
    NewItem,
    Page,
    Preview,
    State,
)
from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.serve.api_types import Answers, Deleted, Represented
from metaxc.serve.http_errors import (
    BusyError,
    ForbiddenError,
    NotReadyError,
    Problem,
    ServiceError,
    SlowError,
    TokenError,
    TooLargeError,
)
from metaxc.serve.serve_settings import is_loopback

Record = TypeVar("Record")
KINDS: dict[int, type[MetaxcError]] = {
    401: TokenError,
    403: ForbiddenError,
    404: NotFoundError,
    408: SlowError,
    409: ConflictError,
    413: TooLargeError,
    422: DataError,
    429: BusyError,
    503: NotReadyError,
    507: StorageError,
}


class Client:
    """A service, by its address.

    Args:
        url: For example http://127.0.0.1:8765.
        token: The read or the write token, where the service wants one.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0):
        where = urlsplit(url)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise ConfigError("Not the address of a service", got=url, expected="http://HOST:PORT")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigError(
                "Not a token", got=f"{len(token)} characters", expected="visible ASCII characters"
            )
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            trust_env=not is_loopback(where.hostname),  # no proxy stands between this machine and itself
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def add(self, items: Iterable[NewItem]) -> AddResult:
        """Add items, all or none."""
        return self._ask(AddResult, "POST", "/v1/items", {"items": [asdict(item) for item in items]})

    def update(self, id: str, text: str | None = None, tags: Sequence[str] | None = None) -> Item:
        """Change an item's text or tags; what is None stays."""
        body = {"text": text, "tags": None if tags is None else list(tags)}
        return self._ask(Item, "PUT", _item(id), body)

    def delete(self, id: str) -> int:
        """Take an item out."""
        return self._ask(Deleted, "DELETE", _item(id)).deleted

    def click(self, item: str, query: str) -> Click:
        """Tell that a query clicked an item."""
        return self._ask(Click, "POST", "/v1/clicks", {"item": item, "query": query})

    def undo(self, click: int) -> Item:
        """Undo a click, by its number."""
        return self._ask(Item, "DELETE", f"/v1/clicks/{click}")

    def search(
        self, queries: Sequence[str], k: int = 10, *, tags: Sequence[str] = (), states: Sequence[State] = ()
    ) -> Answers:
        """The k best items of each query, with the seconds of each stage."""
        body = {"queries": list(queries), "k": k, "tags": list(tags), "states": list(states)}
        return self._ask(Answers, "POST", "/v1/search", body)

    def get(self, id: str) -> Item:
        """One item."""
        return self._ask(Item, "GET", _item(id))

    def list(
        self,
        *,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of the items."""
        asked = {
            "tag": [*tags],
            "state": [*states],
            "limit": limit,
            **({} if after is None else {"after": after}),
        }
        return self._ask(Page, "GET", "/v1/items", params=asked)

    def explain(self, item: str) -> ItemExplanation:
        """Why an item is where it is."""
        return self._ask(ItemExplanation, "GET", "/v1/explain", params={"item": item})

    def preview(self, text: str, *, without: Sequence[str] = (), revealed: Sequence[str] = ()) -> Preview:
        """What would become of a new item."""
        body = {"text": text, "without": [*without], "revealed": [*revealed]}
        return self._ask(Preview, "POST", "/v1/preview", body)

    def represent(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts, dim) float32: meta-classifiers, without adding."""
        made = self._ask(Represented, "POST", "/v1/represent", {"texts": [*texts]})
        return np.asarray(made.vectors, dtype=np.float32)

    def about(self) -> CatalogSummary:
        """The catalog in figures."""
        return self._ask(CatalogSummary, "GET", "/v1/about")

    def ready(self) -> bool:
        """Whether the catalog answers; False where nobody does."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _ask(
        self,
        record: type[Record],
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
    ) -> Record:
        try:
            answer = self._http.request(method, path, json=body, params=params)
        except UnicodeEncodeError as error:
            raise _unsendable(error) from error
        except httpx.TransportError as error:
            raise NotReadyError(
                "The service does not answer", got=f"{self.url}: {error}", fix="start it: metaxc serve MODEL"
            ) from error
        if not answer.is_success:
            raise _error(answer)
        return TypeAdapter(record).validate_json(answer.content)


def _item(id: str) -> str:
    try:
        return f"/v1/items/{quote(id, safe='')}"
    except UnicodeEncodeError as error:
        raise _unsendable(error) from error


def _unsendable(error: UnicodeEncodeError) -> DataError:
    return DataError("A text cannot be sent", got=ascii(error.object[:50]), expected="Unicode text")


def _error(answer: httpx.Response) -> MetaxcError:
    """What the service said, as the kind of error it came from."""
    try:
        problem = TypeAdapter(Problem).validate_json(answer.content)
    except ValidationError:
        problem = Problem("The service answered with an error", got=f"status {answer.status_code}")
    kind = KINDS.get(answer.status_code, ServiceError)
    return kind(problem.what, got=problem.got, expected=problem.expected, fix=problem.fix)
