"""A Python client of the service, with the operations, records and errors of the catalog.

with Client("http://127.0.0.1:8765") as client:
    client.add([{"id": "a", "text": "a red chair"}])
    client.search(["somewhere to sit"])
"""

from __future__ import annotations

import builtins
import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from metaxc.arrays import Floats
from metaxc.catalog import CatalogError, records
from metaxc.catalog.records import Item, NewItem, State
from metaxc.catalog.vector_rules import read_numbers, shorten_numbers
from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.serve.api_types import (
    ClicksResponse,
    DeleteResponse,
    ModelStatus,
    RepresentResponse,
    SearchResponse,
)
from metaxc.serve.http_errors import (
    ERROR_BY_STATUS,
    ERROR_BY_TEXT,
    BusyError,
    ErrorResponse,
    NotReadyError,
    ServiceError,
    TooLargeError,
)
from metaxc.serve.rule_types import check_filter_length
from metaxc.serve.serve_settings import is_loopback

Record = TypeVar("Record")
POLL_SECONDS = 0.2  # between two questions how far a switch is
MAX_WAIT = 999_999.0  # seconds: longer ones are no valid value of the header


class Client:
    """A client of one service.

    Args:
        url: The address of the service, for example http://127.0.0.1:8765.
        token: The read token or the write token, if the service requires one.
        timeout: Seconds to wait for a response. The service is told (`Prefer: wait=SECONDS`), and refuses at once what
            it does not expect to answer in that time.
        verify: For https, the certificates to trust where those of public authorities do not do:
            `ssl.create_default_context(cafile=...)`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        verify: ssl.SSLContext | bool = True,
    ):
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError("The address of the service is invalid", got=url, expected="http://HOST:PORT")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigError(
                "The token contains invalid characters",
                got=f"{len(token)} characters",
                expected="visible ASCII characters",
            )
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers=_headers(token, timeout),
            timeout=timeout,
            verify=verify,
            trust_env=not is_loopback(address.hostname),  # this machine needs no proxy to reach itself
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def add(self, items: Iterable[NewItem | Mapping[str, Any]]) -> records.AddResult:
        """Add items, all or none: `NewItem`s, or mappings with "id", "text" and, if wanted, "tags", "fields" and
        "vector"."""
        body = {"items": [_body(NewItem.of(item)) for item in items]}
        return self._request(records.AddResult, "POST", "/v1/items", body)

    def add_all(
        self,
        items: Iterable[NewItem | Mapping[str, Any]],
        *,
        batch: int = 256,
        patience: float = 600.0,
        progress: Callable[[records.AddResult], None] = lambda done: None,
    ) -> records.AddResult:
        """Add any number of items from an iterable, batch by batch, each of them all or none.

        A batch that the service refuses because it is busy, or cannot take because it restarts, is sent again: what it
        has already with the same content stays as it is. For the same reason a run that was stopped can be repeated.

        Args:
            items: As of `add`; read as they are sent, so that memory does not grow with their number.
            batch: Items per request; one that is too large for the service is halved.
            patience: Seconds for which a batch is sent again before the error is raised.
            progress: Called with the result so far after each batch.
        """
        total, left = records.AddResult(0, 0), iter(items)
        while block := [_body(NewItem.of(item)) for item in islice(left, batch)]:
            for result in self._add_patiently(block, patience):
                total = records.AddResult(total.added + result.added, total.unchanged + result.unchanged)
                progress(total)
        return total

    def _add_patiently(self, block: Sequence[dict[str, Any]], patience: float) -> Iterator[records.AddResult]:
        until = time.monotonic() + patience
        while True:
            try:
                yield self._request(records.AddResult, "POST", "/v1/items", {"items": block})
                return
            except TooLargeError:
                if len(block) == 1:
                    raise
                yield from self._add_patiently(block[: len(block) // 2], patience)
                block = block[len(block) // 2 :]
            except (BusyError, NotReadyError) as error:
                if time.monotonic() + error.retry_after > until:
                    raise
                time.sleep(error.retry_after)

    def update(
        self,
        id: str,
        text: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        fields: Mapping[str, Any] | None = None,
        set_fields: Mapping[str, Any] | None = None,
        vector: Sequence[float] | Floats | None = None,
    ) -> Item:
        """Change parts of an item; None keeps its text, its tags or its fields. Tags may be added or removed, and
        single fields set; a value of None removes a field. A vector is its embedding in place of that of its text."""
        body = {
            "text": text,
            "tags": None if tags is None else list(tags),
            "add_tags": list(add_tags),
            "remove_tags": list(remove_tags),
            "fields": None if fields is None else dict(fields),
            "set_fields": dict(set_fields or {}),
            "vector": None if vector is None else shorten_numbers(read_numbers(vector, "vector")),
        }
        return self._request(Item, "PATCH", _item_path(id), body)

    def delete(self, ids: str | Sequence[str], *, ignore_missing: bool = False) -> int:
        """Delete an item or several, all or none; returns the number of deleted items. Ids of no item are a
        `NotFoundError` or, with `ignore_missing`, ignored."""
        if isinstance(ids, str) and not ignore_missing:
            return self._request(DeleteResponse, "DELETE", _item_path(ids)).deleted
        body = {"ids": [ids] if isinstance(ids, str) else list(ids), "ignore_missing": ignore_missing}
        return self._request(DeleteResponse, "POST", "/v1/items/delete", body).deleted

    def click(self, item: str, query: str, vector: Sequence[float] | Floats | None = None) -> records.Click:
        """Record that a query clicked an item; with the query's embedding as `vector`, `query` is any name for it."""
        body = _body(records.NewClick(item, query, vector=vector))
        return self._request(records.Click, "POST", "/v1/clicks", body)

    def clicks(
        self, clicks: Iterable[records.NewClick | tuple[str, str] | Mapping[str, Any]]
    ) -> tuple[records.Click, ...]:
        """Record several clicks, all or none: `NewClick`s, (item, query) pairs, or mappings with "item", "query" and,
        if wanted, "at" and "vector"."""
        body = {"clicks": [_body(records.NewClick.of(click)) for click in clicks]}
        return self._request(ClicksResponse, "POST", "/v1/clicks", body).clicks

    def undo(self, click: int) -> Item:
        """Undo the click with this number; returns its item."""
        return self._request(Item, "DELETE", f"/v1/clicks/{click}")

    def search(
        self,
        queries: Sequence[str | Floats | Mapping[str, Any]] | Floats,
        k: int = 10,
        *,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        exposure: float | None = None,
    ) -> SearchResponse:
        """The k best items of each query, and the seconds of each stage.

        Args:
            queries: Texts; embeddings, which the service expands as those of texts; vectors that `represent_queries`
                has returned; or mappings with "vector" and "text".
            k: Number of items per query.
            offset: Number of best items to leave out; a page with fewer than k items is the last one.
            filter: Return only items that pass this filter, such as `{"field": "price", "lt": 20}`.
            tags: Return only items that have all of these tags.
            states: Return only items in one of these states; empty returns all.
            exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        """
        body: dict[str, Any] = {"queries": _given(queries), "k": k, "tags": [*tags], "states": [*states]}
        body |= {"offset": offset, "filter": None if filter is None else dict(filter), "exposure": exposure}
        return self._request(SearchResponse, "POST", "/v1/search", body)

    def get(self, id: str) -> Item:
        """One item."""
        return self._request(Item, "GET", _item_path(id))

    def list(
        self,
        *,
        filter: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> records.Page:
        """A page of the items that pass the filters, as in `search`; pass `next` of a page as `after`."""
        asked: dict[str, Any] = {"tag": [*tags], "state": [*states], "limit": limit}
        asked["after"] = [] if after is None else after
        asked["filter"] = [] if filter is None else check_filter_length(json.dumps(dict(filter)))
        return self._request(records.Page, "GET", "/v1/items", params=asked)

    def explain(self, item: str) -> records.ItemExplanation:
        """What an item's vector is made of: its neighbours, their weights, and its clicks."""
        return self._request(records.ItemExplanation, "GET", "/v1/explain", params={"item": item})

    def preview(
        self, text: str, *, without: Sequence[str] = (), revealed: Sequence[str] = ()
    ) -> records.Preview:
        """What a new item's vector would be made of, and which queries would find it."""
        body = {"text": text, "without": [*without], "revealed": [*revealed]}
        return self._request(records.Preview, "POST", "/v1/preview", body)

    def represent(self, items: Sequence[str | Floats] | Floats) -> NDArray[np.float32]:
        """(n, dim + 1) float32: the meta-classifiers of texts or embeddings of items, with their shares of the
        exposure, without adding them."""
        response = self._request(RepresentResponse, "POST", "/v1/represent", {"texts": _given(items)})
        return np.asarray(response.vectors, dtype=np.float32)

    def represent_queries(
        self, queries: Sequence[str | Floats] | Floats, exposure: float | None = None
    ) -> NDArray[np.float32]:
        """(n, dim + 1) float32: the vectors that texts or embeddings of queries are searched with, and the exposure."""
        body: dict[str, Any] = {"queries": _given(queries), "exposure": exposure}
        response = self._request(RepresentResponse, "POST", "/v1/represent", body)
        return np.asarray(response.queries, dtype=np.float32)

    def about(self) -> records.CatalogSummary:
        """A summary of the catalog."""
        return self._request(records.CatalogSummary, "GET", "/v1/about")

    def model_status(self) -> ModelStatus:
        """Which model is served, and how far a switch to another one is, or how the last one ended."""
        return self._request(ModelStatus, "GET", "/v1/model")

    def switch_model(
        self,
        model: str | PathLike[str] | None = None,
        *,
        rollback: bool = False,
        force: bool = False,
        wait: bool = True,
        progress: Callable[[ModelStatus], None] = lambda status: None,
    ) -> ModelStatus:
        """Switch the service to another model; searches and writes go on meanwhile.

        Args:
            model: The model's folder on the service's machine, absolute or relative to its folder of models.
            rollback: Switch back to the previous generation instead.
            force: Switch though the checks would refuse it.
            wait: Whether to wait until it has switched; otherwise the switch has begun when this returns.
            progress: Called with the status now and then.

        Returns:
            The status; a switch that failed is a `CatalogError`, unless nobody waits for it.
        """
        body = {"model": None if model is None else fspath(model), "rollback": rollback, "force": force}
        status = self._request(ModelStatus, "POST", "/v1/model", body)
        while wait and status.under_way:
            progress(status)
            time.sleep(POLL_SECONDS)
            status = self.model_status()
        if status.state == "failed":
            raise CatalogError(
                "The model was not switched",
                got=status.reason,
                fix="the service continues with the model that it had; its log has the details",
            )
        return status

    def ready(self) -> bool:
        """Whether the catalog is open; False if no service answers."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _request(
        self,
        record: type[Record],
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
    ) -> Record:
        try:
            response = self._http.request(method, path, json=body, params=params)
        except UnicodeEncodeError as error:
            raise _invalid_unicode(error) from error
        except httpx.TransportError as error:
            raise NotReadyError(
                "The service does not respond", got=f"{self.url}: {error}", fix="start it: metaxc serve MODEL"
            ) from error
        if not response.is_success:
            raise _read_error(response)
        return TypeAdapter(record).validate_json(response.content)


def _headers(token: str | None, timeout: float) -> dict[str, str]:
    wait = f"{min(timeout, MAX_WAIT):.6f}".rstrip("0").rstrip(".")
    return {"Prefer": f"wait={wait}", **({"Authorization": f"Bearer {token}"} if token else {})}


def _body(record: NewItem | records.NewClick) -> dict[str, Any]:
    """An item or a click as JSON, without what it has not."""
    body = {name: value for name, value in vars(record).items() if value is not None}
    if isinstance(record, NewItem):
        body["fields"] = dict(record.fields)
    if record.vector is not None:
        body["vector"] = shorten_numbers(read_numbers(record.vector, "vector"))
    return body


def _given(given: Sequence[str | Floats | Mapping[str, Any]] | Floats) -> builtins.list[Any]:
    """Texts and vectors as JSON."""
    body: builtins.list[Any] = []
    for one in given:
        if isinstance(one, str):
            body.append(one)
        else:
            record = one if isinstance(one, Mapping) else {"vector": one}
            body.append({**record, "vector": shorten_numbers(read_numbers(record.get("vector"), "vector"))})
    return body


def _item_path(id: str) -> str:
    try:
        return f"/v1/items/{quote(id, safe='')}"
    except UnicodeEncodeError as error:
        raise _invalid_unicode(error) from error


def _invalid_unicode(error: UnicodeEncodeError) -> DataError:
    return DataError(
        "The request contains invalid Unicode",
        got=ascii(error.object[:50]),
        expected="text without lone surrogates",
        fix="decode the source as UTF-8",
    )


def _read_error(response: httpx.Response) -> MetaxcError:
    """The error of a response, as the exception type that the service raised."""
    try:
        body = TypeAdapter(ErrorResponse).validate_json(response.content)
    except ValidationError:
        body = ErrorResponse("The service returned an error", got=f"status {response.status_code}")
    kind = ERROR_BY_TEXT.get(body.what) or ERROR_BY_STATUS.get(response.status_code, ServiceError)
    error = kind(body.what, got=body.got, expected=body.expected, fix=body.fix)
    after = response.headers.get("Retry-After", "")
    if isinstance(error, BusyError | NotReadyError) and after.isdecimal():
        error.retry_after = float(after)
    return error
