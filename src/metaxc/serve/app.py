"""The app: one route per verb of the catalog, and the page.

Routes are async and do no work of their own: they wait for a lane (`metaxc.serve.batching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from metaxc import __version__
from metaxc.catalog import Catalog
from metaxc.catalog.catalog_errors import NotFoundError
from metaxc.catalog.records import (
    AddResult,
    CatalogSummary,
    Click,
    Item,
    ItemExplanation,
    Page,
    Preview,
    State,
)
from metaxc.errors import DataError
from metaxc.serve import api_types
from metaxc.serve.api_types import (
    Answer,
    Answers,
    Cursor,
    Deleted,
    Health,
    Name,
    Ready,
    Represented,
    Requests,
    Tag,
)
from metaxc.serve.http_errors import MEANS, Problem, answer_errors
from metaxc.serve.middleware import AccessControl, BodyLimit, SecurityHeaders, is_open
from metaxc.serve.prometheus_metrics import CONTENT_TYPE
from metaxc.serve.searching import Search
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.service import Service
from metaxc.serve.writing import Add, ClickOn, Delete, Undo, Update

PAGE = Path(__file__).parent / "page"
ALWAYS = (403, 408, 413, 422, 429, 500, 503)
ItemId = Annotated[Name, InPath(description="The item's id; it may hold slashes")]


def make_app(
    catalog: Catalog | Callable[[], Catalog],
    settings: ServeSettings | None = None,
    *,
    opened: Callable[[], None] = lambda: None,
    failed: Callable[[Exception], None] = lambda error: None,
) -> FastAPI:
    """The service as an ASGI app. It closes the catalog when it ends.

    Args:
        catalog: The catalog, or what opens it.
        settings: All limits.
        opened: Called when the catalog answers.
        failed: Called with the error where the catalog could not be opened.
    """
    settings = settings or ServeSettings()
    service = Service(catalog, settings, opened, failed)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="metaxc",
        version=__version__,
        summary="A live catalog of items, found before anybody has clicked them",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    answer_errors(app)
    app.include_router(_probes(service))
    app.include_router(_items(service, settings))
    app.include_router(_searches(service, settings))
    _page(app)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(AccessControl, settings=settings, state=lambda: service.state, room=service.check_room)
    app.add_middleware(SecurityHeaders, metrics=service.metrics)
    if settings.guarded:
        _tell_of_tokens(app)
    return app


def body_of(model: type[Any]) -> Any:
    """The body of a request as a model that is made while the app is."""

    async def given(body: Any) -> Any:  # not async, FastAPI would call it in another thread
        return body

    given.__annotations__["body"] = model
    return Depends(given)


def only_known(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a misspelt filter must not answer with everything."""
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    strange = next((name for name in request.query_params if name not in known), None)
    if strange is not None:
        raise DataError(
            "Unknown query parameter", got=repr(strange), expected=", ".join(sorted(known)) or "none"
        )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a refused request, for the OpenAPI."""
    made: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*ALWAYS, *statuses}):
        made[status] = {"model": Problem, "description": MEANS[status]}
        if status in (429, 503):
            seconds = {"description": "Seconds to wait", "schema": {"type": "integer"}}
            made[status]["headers"] = {"Retry-After": seconds}
    return made


def _probes(service: Service) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    async def health() -> Health:
        """The process answers."""
        return Health("ok")

    @router.get("/readyz", responses={503: {"model": Ready, "description": "Opening or closing"}})
    async def ready(response: Response) -> Ready:
        """The catalog answers."""
        if service.state != "ready":
            response.status_code = 503
        return Ready(service.state == "ready")

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(401)},
    )
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(await asyncio.to_thread(service.metrics.text), media_type=CONTENT_TYPE)

    return router


def _items(service: Service, settings: ServeSettings) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["items"], dependencies=[Depends(only_known)])
    bounded = Requests(settings)
    add_body, update_body, click_body = (
        body_of(made) for made in (bounded.add, bounded.update, bounded.click)
    )
    states, tags = Query([], max_length=3), Query([], max_length=settings.most_tags)
    limits = Query(min(100, settings.most_page), ge=1, le=settings.most_page)

    @router.get("/about", responses=problems())
    async def about(request: Request) -> CatalogSummary:
        """The catalog in figures."""
        return await service.read(request, lambda catalog: catalog.about())

    @router.post("/items", responses=problems(409, 507))
    async def add(request: Request, body: api_types.AddRequest = add_body) -> AddResult:
        """Add items, all or none; from the next search on they are found."""
        change = Add(tuple(item.record() for item in body.items))
        done: AddResult = await service.write(request, change)
        return done

    @router.get("/items", responses=problems())
    async def list_items(
        request: Request,
        state: list[State] = states,
        tag: list[Tag] = tags,
        after: Cursor | None = None,
        limit: int = limits,
    ) -> Page:
        """A page of the items with all of the tags, in one of the states."""
        return await service.read(
            request, lambda catalog: catalog.list(tags=tag, states=state, after=after, limit=limit)
        )

    @router.get("/items/{id:path}", responses=problems(404))
    async def get_item(request: Request, id: ItemId) -> Item:
        """One item."""
        return await service.read(request, lambda catalog: catalog.get(id))

    @router.put("/items/{id:path}", responses=problems(404, 507))
    async def update_item(request: Request, id: ItemId, body: api_types.UpdateRequest = update_body) -> Item:
        """Change an item's text or tags."""
        tags = None if body.tags is None else tuple(body.tags)
        done: Item = await service.write(request, Update(id, body.text, tags))
        return done

    @router.delete("/items/{id:path}", responses=problems(404, 507))
    async def delete_item(request: Request, id: ItemId) -> Deleted:
        """Take an item out."""
        return Deleted(await service.write(request, Delete(id)))

    @router.post("/clicks", responses=problems(404, 507))
    async def click(request: Request, body: api_types.ClickRequest = click_body) -> Click:
        """Tell that a query clicked an item."""
        done: Click = await service.write(request, ClickOn(body.item, body.query))
        return done

    @router.delete("/clicks/{number}", responses=problems(404, 507))
    async def undo(request: Request, number: Annotated[int, InPath(ge=1, le=api_types.MOST_NUMBER)]) -> Item:
        """Undo a click."""
        done: Item = await service.write(request, Undo(number))
        return done

    return router


def _searches(service: Service, settings: ServeSettings) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["search"], dependencies=[Depends(only_known)])
    bounded = Requests(settings)
    search_body, preview_body, represent_body = (
        body_of(made) for made in (bounded.search, bounded.preview, bounded.represent)
    )

    @router.post("/search", responses=problems())
    async def search(request: Request, body: api_types.SearchRequest = search_body) -> Answers:
        """The k best items of each query."""
        asked = Search(tuple(body.queries), body.k, tuple(body.tags), tuple(body.states))
        found = await service.search(request, asked)
        pairs = zip(body.queries, found.hits, strict=True)
        return Answers(tuple(Answer(query, tuple(hits)) for query, hits in pairs), found.seconds)

    @router.get("/explain", responses=problems(404))
    async def explain(request: Request, item: Name) -> ItemExplanation:
        """Why an item is where it is."""
        return await service.read(request, lambda catalog: catalog.explain(item))

    @router.post("/preview", responses=problems())
    async def preview(request: Request, body: api_types.PreviewRequest = preview_body) -> Preview:
        """What would become of a new item, without adding it."""
        return await service.read(
            request,
            lambda catalog: catalog.preview(body.text, without=body.without, revealed=body.revealed),
        )

    @router.post("/represent", responses=problems())
    async def represent(request: Request, body: api_types.RepresentRequest = represent_body) -> Represented:
        """The meta-classifiers of texts, for a vector database of your own."""
        vectors = await service.read(request, lambda catalog: catalog.represent(body.texts).tolist())
        return Represented(vectors, service.model)

    return router


def _page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        if not (PAGE / "index.html").is_file():
            raise NotFoundError("The page is not installed", fix="use the API under /v1")
        return FileResponse(PAGE / "index.html")

    app.mount("/static", StaticFiles(directory=PAGE, check_dir=False), name="static")


def _tell_of_tokens(app: FastAPI) -> None:
    """Say in the OpenAPI which routes want a token."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = plain()
            made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            refused = {"schema": {"$ref": "#/components/schemas/Problem"}}
            for path, operations in made["paths"].items():
                for operation in operations.values() if not is_open(path) else ():
                    operation["security"] = [{"token": []}]
                    operation["responses"]["401"] = {
                        "description": MEANS[401],
                        "content": {"application/json": refused},
                    }
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
