"""`metaxc serve`: the live catalog over HTTP, with its page."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.catalog_command import known_queries
from metaxc.cli.shared import Base, Cache, Model, invalid_option, load_model, print_status, set_threads
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.catalog import Catalog
    from metaxc.serve.serve_settings import ServeSettings


def serve(
    model: Model,
    catalog: Annotated[
        Path | None, typer.Option("--catalog", help="Catalog folder.  [default: MODEL.catalog]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Data set folder: its training queries are what a preview looks at."),
    ] = None,
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen on; other than loopback needs $METAXC_WRITE_TOKEN."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes any free one.")] = 8765,
    read_only: Annotated[bool, typer.Option("--read-only", help="Answer, but change nothing.")] = False,
    base: Base = None,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", min=0, help="CPU threads of a search or a write; 0 takes half of the cores."
        ),
    ] = 0,
    cache: Cache = None,
) -> None:
    """Serve a live catalog of the model's items: add, click, search, explain, over HTTP and on a page.

    The catalog is made at the first start and opened at the next. Ctrl-C closes it; nothing acknowledged is lost.
    """
    from pydantic import ValidationError

    from metaxc.serve.serve_settings import ServeSettings

    set_threads(threads or half_of_the_cores())
    try:
        settings = ServeSettings.of_environment(host=host, port=port)
    except ValidationError as error:
        raise invalid_option(error) from error
    place = catalog or model.resolve().with_name(f"{model.resolve().name}.catalog")
    run(lambda: opened(place, model, data, read_only, base, cache), settings)


def half_of_the_cores() -> int:
    """Threads for each of a search and a write, which run side by side: with all cores for both, threads that wait for
    each other take the time of those that work. Measured on two busy cores, one thread against two: a search takes 17
    against 28 ms of CPU time, an add 11 against 27, a click 16 against 246."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def opened(
    place: Path, model: Path, data: Path | None, read_only: bool, base: str | None, cache: Path | None
) -> Catalog:
    """The catalog at `place`, made there where there is none."""
    from metaxc.catalog import Catalog

    trained = load_model(model, base, cache)
    if place.exists() or read_only:
        print_status(f"opening the catalog {place}")
        made = Catalog.open(place, trained, read_only=read_only)
    else:
        print_status(f"making the catalog {place}")
        made = Catalog.create(place, trained, queries=known_queries(data))
    made.warm()
    return made


def run(source: Any, settings: ServeSettings) -> None:
    """Listen until told to stop; an error of opening is raised when the server has ended."""
    import uvicorn

    from metaxc.serve.app import make_app

    listening = listen(settings.host, settings.port)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    app = make_app(source, settings, opened=lambda: print(f"ready: {url}", flush=True), failed=failed)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=settings.shutdown_timeout,
        )
    )
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        print_status("closed")
    if errors:
        raise errors[0]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's delay off; without, each answer waits 40 ms for an acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        made.listen(2048)
    except OSError as error:
        made.close()
        raise ConfigError(
            "The service cannot listen there",
            got=f"{host}:{port}: {error.strerror or error}",
            expected="an address of this machine and a free port",
            fix="give another --port, or end what listens there",
        ) from error
    return made
