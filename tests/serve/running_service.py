"""A running service for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from metaxc.cli.serve_command import listen
from metaxc.serve.app import make_app
from metaxc.serve.http_server import HttpServer
from metaxc.serve.serve_settings import ServeSettings

HOME = "http://127.0.0.1:8765"


@contextmanager
def running(catalog, settings: ServeSettings | None = None) -> Iterator[str]:
    """The address of a real server on a free port; it shuts down when the block ends."""
    settings = settings or ServeSettings()
    ready = threading.Event()
    listening = listen(settings.network.host, 0)
    app = make_app(lambda: catalog, settings, on_ready=ready.set)
    server = HttpServer(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def add(http, name, text, **more):
    """Add one item over HTTP."""
    return http.post("/v1/items", json={"items": [{"id": name, "text": text, **more}]})
