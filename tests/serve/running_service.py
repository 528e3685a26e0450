"""A running service for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from metaxc.catalog import NewItem
from metaxc.cli.serve_command import listen
from metaxc.serve.app import make_app
from metaxc.serve.client import Client
from metaxc.serve.http_server import HttpServer
from metaxc.serve.serve_settings import ServeSettings

HOME = "http://127.0.0.1:8765"
UNUSUAL_IDS = [
    *(
        "a/b.java",
        "/usr/share/x",
        "a//b",
        "a/",
        "/",
        "..a",
        "a..",
        ".../b",
        "%2e%2e",
        "a%2Fb",
        "a?b=c&d",
        "a#b",
    ),
    *(
        "a;b",
        "a\\b",
        "a+b",
        " a ",
        "a b",
        "*",
        "~",
        '"',
        "<b>",
        "é",
        "e\u0301",
        "日本",
        "\u202eabc",
        "😀" * 500,
    ),
]
"""Ids that the rules allow and that a URL must encode."""


def exercise(client: Client, name: str) -> None:
    """Everything that can be done with one item over HTTP."""
    assert client.add([NewItem(name, "grey cat")]).added == 1
    assert client.get(name).id == name
    number = client.click(name, "cheap lemon").number
    assert client.explain(name).clicks[0].number == number
    assert client.undo(number).id == name
    assert client.update(name, tags=[name[:100]]).tags == (name[:100].strip(),)
    assert [item.id for item in client.list(tags=[name[:100].strip()]).items] == [name]
    assert client.delete(name) == 1


@contextmanager
def running(catalog, settings: ServeSettings | None = None, **options) -> Iterator[str]:
    """The address of a real server on a free port; it shuts down when the block ends."""
    settings = settings or ServeSettings()
    ready = threading.Event()
    listening = listen(settings.network.host, 0)
    app = make_app(lambda: catalog, settings, on_ready=ready.set, **options)
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
