"""The app: one route per operation of the catalog, and the web page.

Handlers are async and do no work of their own: they submit it to the queue that their route declares
(`metaxc.serve.service`). Their docstrings are the descriptions in the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import TypeAdapter

from metaxc import __version__
from metaxc.catalog import Catalog, records
from metaxc.catalog.catalog_errors import NotFoundError
from metaxc.catalog.item_filters import parse_filter
from metaxc.serve import api_types as api
from metaxc.serve.api_page import render_api_page
from metaxc.serve.api_types import Cursor, ItemId, RequestModels, Tag
from metaxc.serve.body_limit import BodyLimit
from metaxc.serve.http_errors import install_error_handlers
from metaxc.serve.middleware import (
    PROBE,
    PUBLIC,
    READ,
    READ_METRICS,
    SEARCH,
    WRITE,
    AccessControl,
    RouteTable,
    SecurityHeaders,
)
from metaxc.serve.model_switcher import ModelFolders
from metaxc.serve.prometheus_metrics import CONTENT_TYPE
from metaxc.serve.rule_types import FILTER_PARAMETER, check_filter_length
from metaxc.serve.serve_settings import RequestLimits, ServeSettings
from metaxc.serve.service import Service
from metaxc.serve.write_batcher import DeleteItem, UndoClick, UpdateItem

PAGE = Path(__file__).parent / "page"
LARGE: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (records.Page, api.SearchResponse, api.RepresentResponse)
}
ItemIdPath = Annotated[ItemId, PathParameter(description="The item's id; it may contain slashes")]
ClickNumber = Annotated[int, PathParameter(ge=1, le=api.MAX_CLICK_NUMBER)]


def make_app(
    catalog: Catalog | Callable[[], Catalog],
    settings: ServeSettings | None = None,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_failure: Callable[[Exception], None] = lambda error: None,
    reopen: Callable[[Catalog], Catalog] | None = None,
    models: ModelFolders | None = None,
    on_switched: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The service as an ASGI app. It closes the catalog at shutdown.

    Args:
        catalog: The catalog, or a function that opens it.
        settings: The settings.
        on_ready: Called when the catalog is open.
        on_failure: Called with the error when it could not be opened.
        reopen: Opens what another process has put in the place of a read-only catalog, which it is given; None opens
            it with the same model.
        models: The models that it may be switched to; None for none.
        on_switched: Called when it has been switched to another model and the old one is closed.
    """
    settings = settings or ServeSettings()
    service = Service(catalog, settings, on_ready, on_failure, reopen, models, on_switched)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="metaxc",
        version=__version__,
        summary="A live catalog whose items are found before anybody has clicked them",
        lifespan=lifespan,
        openapi_url=None,  # FastAPI's own route writes the document anew for each request
        docs_url=None,  # FastAPI's own pages load scripts from another site; `api_page` needs none
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    routes = RouteTable(app, requires_token=settings.tokens.required)
    app.state.service, app.state.routes = service, routes
    install_error_handlers(app)
    _declare_service_routes(routes, service)
    requests = RequestModels(settings.limits)
    _declare_item_routes(routes, service, requests, settings.limits)
    _declare_search_routes(routes, service, requests)
    _declare_model_routes(routes, service)
    _declare_documents(routes, app)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(AccessControl, settings=settings, routes=routes, check_capacity=service.check_capacity)
    app.add_middleware(SecurityHeaders, metrics=service.metrics)
    return app


def body_parameter(model: Any) -> Any:
    """The request body as a model that is built together with the app."""

    async def get_body(body: Any) -> Any:  # FastAPI would call a function that is not async in another thread
        return body

    # Body says so of a union, which the lowest version of FastAPI would look for in the query string.
    get_body.__annotations__["body"] = Annotated[model, Body()]
    return Depends(get_body)


def render(value: Any) -> Any:
    """A response that may be large, rendered in one step. FastAPI would first turn it into dictionaries, which blocks
    all other requests five times as long: 0.1 s with 256 queries of 100 hits."""
    return Response(LARGE[type(value)].dump_json(value), media_type="application/json")


def _declare_service_routes(routes: RouteTable, service: Service) -> None:
    add_route = partial(routes.add, tags=["service"])

    @add_route("GET", "/healthz", PROBE)
    async def health() -> api.HealthResponse:
        """Returns 200 while the process is running."""
        return api.HealthResponse("ok")

    not_ready = {503: {"model": api.ReadyResponse, "description": "The catalog is opening or closing"}}

    @add_route("GET", "/readyz", PROBE, responses=not_ready)
    async def ready(response: Response) -> api.ReadyResponse:
        """Returns 200 while searches are answered."""
        ready = service.ready
        if not ready:
            response.status_code = 503
        return api.ReadyResponse(ready)

    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @add_route("GET", "/metrics", READ_METRICS, response_class=Response, responses=text)
    async def metrics() -> Response:
        """Returns the metrics in Prometheus' text format."""
        return Response(await asyncio.to_thread(service.metrics.render), media_type=CONTENT_TYPE)


def _declare_item_routes(
    routes: RouteTable, service: Service, models: RequestModels, limits: RequestLimits
) -> None:
    add_route = partial(routes.add, tags=["items"])
    add_body, update_body, patch_body, delete_body, click_body = map(
        body_parameter, (models.add, models.update, models.patch, models.delete, models.click)
    )
    state_filter, tag_filter = Query([], max_length=3), Query([], max_length=limits.max_tags)
    page_size = Query(min(100, limits.max_page_size), ge=1, le=limits.max_page_size)
    field_filter = Query(None, include_in_schema=False)  # `FILTER_PARAMETER` describes it

    @add_route("GET", "/v1/about", READ)
    async def about(request: Request) -> records.CatalogSummary:
        """Returns a summary of the catalog: its model, its index, the number of items and clicks, and what exposing new
        items more or less would cost and bring."""
        return await service.read(request, lambda catalog: catalog.about())

    @add_route("POST", "/v1/items", WRITE, 409)
    async def add(request: Request, body: api.AddRequest = add_body) -> records.AddResult:
        """Adds items, all or none. The next search finds them."""
        result: records.AddResult = await service.write(request, body)
        return result

    @add_route("GET", "/v1/items", READ, openapi_extra={"parameters": [FILTER_PARAMETER]})
    async def list_items(
        request: Request,
        state: list[records.State] = state_filter,
        tag: list[Tag] = tag_filter,
        filter: str | None = field_filter,
        after: Cursor | None = None,
        limit: int = page_size,
    ) -> records.Page:
        """Returns a page of the items that pass the filter, have all of the tags, and are in one of the states. The
        filter is that of a search, as JSON."""
        chosen: dict[str, Any] = {"tags": tag, "states": state}
        if filter is not None:
            chosen["filter"] = parse_filter(check_filter_length(filter))
        page: records.Page = render(
            await service.read(request, lambda catalog: catalog.list(**chosen, after=after, limit=limit))
        )
        return page

    @add_route("GET", "/v1/items/{id:path}", READ, 404)
    async def get_item(request: Request, id: ItemIdPath) -> records.Item:
        """Returns one item."""
        return await service.read(request, lambda catalog: catalog.get(id))

    @add_route("PUT", "/v1/items/{id:path}", WRITE, 404)
    async def update_item(
        request: Request, id: ItemIdPath, body: api.UpdateRequest = update_body
    ) -> records.Item:
        """Changes an item's text, tags or fields; what is omitted keeps its value."""
        item: records.Item = await service.write(request, UpdateItem(id, body))
        return item

    @add_route("PATCH", "/v1/items/{id:path}", WRITE, 404)
    async def patch_item(
        request: Request, id: ItemIdPath, body: api.PatchRequest = patch_body
    ) -> records.Item:
        """Changes parts of an item: its text, its tags or single tags, its fields or single fields; what is omitted
        keeps its value."""
        item: records.Item = await service.write(request, UpdateItem(id, body))
        return item

    @add_route("POST", "/v1/items/delete", WRITE, 404)
    async def delete_items(request: Request, body: api.DeleteRequest = delete_body) -> api.DeleteResponse:
        """Deletes items, all or none."""
        return api.DeleteResponse(await service.write(request, body))

    @add_route("DELETE", "/v1/items/{id:path}", WRITE, 404)
    async def delete_item(request: Request, id: ItemIdPath) -> api.DeleteResponse:
        """Deletes an item."""
        return api.DeleteResponse(await service.write(request, DeleteItem(id)))

    @add_route("POST", "/v1/clicks", WRITE, 404)
    async def click(
        request: Request, body: api.ClickRequest | api.ClicksRequest = click_body
    ) -> records.Click | api.ClicksResponse:
        """Records that a query clicked an item, or a list of clicks, all or none."""
        result = await service.write(request, body)
        return api.ClicksResponse(tuple(result)) if isinstance(body, api.ClicksRequest) else result

    @add_route("DELETE", "/v1/clicks/{number}", WRITE, 404)
    async def undo(request: Request, number: ClickNumber) -> records.Item:
        """Undoes a click and returns its item."""
        item: records.Item = await service.write(request, UndoClick(number))
        return item


def _declare_search_routes(routes: RouteTable, service: Service, models: RequestModels) -> None:
    add_route = partial(routes.add, tags=["search"])
    search_body, preview_body, represent_body = map(
        body_parameter, (models.search, models.preview, models.represent)
    )

    @add_route("POST", "/v1/search", SEARCH)
    async def search(request: Request, body: api.SearchRequest = search_body) -> api.SearchResponse:
        """Returns the k best items of each query that pass the filters, from `offset` on. A query is a text or a
        vector; `exposure` decides how early new items are shown."""
        response: api.SearchResponse = render(await service.search(request, body))
        return response

    @add_route("GET", "/v1/explain", READ, 404)
    async def explain(request: Request, item: ItemId) -> records.ItemExplanation:
        """Explains an item's vector: its neighbours, their weights, and its clicks."""
        return await service.read(request, lambda catalog: catalog.explain(item))

    @add_route("POST", "/v1/preview", SEARCH)
    async def preview(request: Request, body: api.PreviewRequest = preview_body) -> records.Preview:
        """Explains the vector that a new item would get, and the queries that would find it, without adding it."""
        return await service.preview(request, body)

    @add_route("POST", "/v1/represent", SEARCH)
    async def represent(
        request: Request, body: api.RepresentRequest = represent_body
    ) -> api.RepresentResponse:
        """Returns the meta-classifiers of new items, without adding them, and the vectors that queries are searched
        with, for example for a vector database: scores are inner products."""
        response: api.RepresentResponse = render(await service.represent(request, body))
        return response


def _declare_model_routes(routes: RouteTable, service: Service) -> None:
    add_route = partial(routes.add, tags=["model"])

    @add_route("GET", "/v1/model", READ)
    async def model_status(request: Request) -> api.ModelStatus:
        """Returns which model is served, and how far a switch to another one is, or how the last one ended."""
        return await service.model_status(request)

    @add_route("POST", "/v1/model", WRITE, 404, 409, status_code=202)
    async def switch_model(request: Request, body: api.SwitchRequest) -> api.ModelStatus:
        """Begins to switch to another model, while searches and writes go on; `GET /v1/model` tells how far it is. The
        new generation is built beside the present one, checked, and then used at once."""
        return await service.switch_model(request, body)


class Document:
    """A file or text that everybody may read, kept in memory: an open file per response would let clients that do not
    read their responses use up the file descriptors of the process."""

    def __init__(self, content: bytes, media_type: str):
        self._content, self._media_type = content, media_type
        self._etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def respond(self, request: Request) -> Response:
        """The document, or 304 if the client has it."""
        headers = {"ETag": self._etag}
        if request.headers.get("if-none-match") == self._etag:
            return Response(status_code=304, headers=headers)
        return Response(self._content, media_type=self._media_type, headers=headers)


def _declare_documents(routes: RouteTable, app: FastAPI) -> None:
    """The page and the OpenAPI document, which describes the routes declared before."""
    add_route = partial(routes.add, include_in_schema=False)
    types = {path.name: mimetypes.guess_type(path.name)[0] or "text/plain" for path in PAGE.glob("*.*")}
    files = {name: Document((PAGE / name).read_bytes(), kind) for name, kind in types.items()}
    described: list[Document] = []
    writing = asyncio.Lock()

    def describe() -> list[Document]:
        openapi = app.openapi()
        return [
            Document(json.dumps(openapi).encode(), "application/json"),
            Document(render_api_page(openapi), "text/html"),
        ]

    async def get_description(request: Request, number: int) -> Response:
        async with writing:
            if not described:  # takes 0.15 s, once
                described.extend(await asyncio.to_thread(describe))
        return described[number].respond(request)

    @add_route("GET", "/openapi.json", PUBLIC)
    async def openapi_document(request: Request) -> Response:
        return await get_description(request, 0)

    @add_route("GET", "/docs", PUBLIC)
    async def api_page(request: Request) -> Response:
        return await get_description(request, 1)

    @add_route("GET", "/", PUBLIC)
    async def page(request: Request) -> Response:
        return get_file(request, "index.html")

    @add_route("GET", "/static/{name}", PUBLIC)
    async def get_file_of_page(request: Request, name: str) -> Response:
        return get_file(request, name)

    def get_file(request: Request, name: str) -> Response:
        if name not in files:
            raise NotFoundError("The web page has no such file", got=name, fix="use the API under /v1")
        return files[name].respond(request)
