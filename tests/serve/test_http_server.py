"""The server's edge on real sockets: strangers come, wait, send half of something, and do not read."""

import asyncio
import errno
import gc
import logging
import socket
import threading
import weakref
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from metaxc.cli.serve_command import listen
from metaxc.serve import acceptor, guarded_connection, http_server, stranger_turns
from metaxc.serve.acceptor import Acceptor
from metaxc.serve.connection_table import ConnectionTable
from metaxc.serve.guarded_connection import Edge, GuardedConnection
from metaxc.serve.http_server import HttpServer
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.stranger_turns import StrangerSelector, Turns

TOKEN = "w" * 20
LARGE = 16 << 20  # bytes: more than the buffers of both ends hold
PATIENCE = 30  # seconds; no test takes as long unless it fails


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(http_server, "SWEEP_INTERVAL", 0.02)
    monkeypatch.setattr(guarded_connection, "DRAIN_TIMEOUT", 0.1)
    monkeypatch.setattr(acceptor, "defer_accept", lambda listening, seconds: None)


class SmallApp:
    """Responds to `/admitted` like a route that needs a token, and to `/large` with much."""

    def __init__(self):
        self.requests = 0
        routes = [Route(path, self.respond, methods=["GET", "POST"]) for path in ("/", "/admitted", "/large")]
        self.app = Starlette(routes=routes)

    async def respond(self, request):
        self.requests += 1
        if request.url.path == "/admitted":
            request.scope["state"]["connection"].admit()
        return PlainTextResponse("x" * LARGE if request.url.path == "/large" else "hello")


@contextmanager
def serving(app, **connections):
    """A server of an app; a function that connects to it."""
    settings = ServeSettings(connections=connections, tokens={"write": TOKEN})
    listening = listen("127.0.0.1", 0)
    server = HttpServer(app.app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    clients = []

    def connect(sent=b"", size=0):
        client = socket.socket()
        if size:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        client.settimeout(PATIENCE)
        client.connect(listening.getsockname())
        client.sendall(sent)
        clients.append(client)
        return client

    connect.server = server
    try:
        yield connect
    finally:
        for client in clients:
            client.close()
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def request(path="/", method="GET", **headers):
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {headers[name]}" for name in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_response(client):
    """The status and body of one response, whose body is short."""
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith((b"hello", b"received.")):
        part = client.recv(65536)
        if not part:
            break
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0].decode(), body


def is_closed(client):
    """Wait until the server closes a connection; fails by timeout if it never does."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


OK = ("HTTP/1.1 200 OK", b"hello")


def test_idle_strangers_make_room_for_who_comes_later():
    with serving(SmallApp(), max_connections=8, header_timeout=600) as connect:
        strangers = [connect() for _ in range(30)]
        assert read_response(connect(request())) == OK
        assert is_closed(strangers[0])
        assert len(connect.server.edge.table) <= 8


def test_idle_strangers_are_left_to_the_system(monkeypatch):
    monkeypatch.undo()
    with serving(SmallApp(), max_connections=8) as connect:
        assert read_response(connect(request())) == OK  # now the server accepts
        for _ in range(30):
            connect()
        assert read_response(connect(request())) == OK
        if hasattr(socket, "TCP_DEFER_ACCEPT"):
            assert len(connect.server.edge.table) == 2


def test_strangers_that_wait_for_their_turn_are_replaced_by_newer_ones(monkeypatch):
    waiting = []
    monkeypatch.setattr(Turns, "wait", lambda turns, network, function: waiting.append(function))
    with serving(SmallApp(), max_connections=8, header_timeout=600) as connect:
        strangers = [connect(request()) for _ in range(20)]
        assert is_closed(strangers[0])
        assert read_response(connect(request("/admitted", Authorization=f"Bearer {TOKEN}"))) == OK
        assert len(connect.server.edge.table) <= 8


def test_strangers_that_have_gone_do_not_wait_for_their_turn(monkeypatch):
    monkeypatch.setattr(stranger_turns, "PAUSE", 600.0)
    monkeypatch.setattr(stranger_turns, "RECENT", 600.0)
    with serving(SmallApp(), max_connections=8, header_timeout=600) as connect:
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert read_response(connect(request("/admitted", **token))) == OK
        strangers = [connect(request()) for _ in range(30)]  # one of them at most has a turn
        assert all(is_closed(stranger) for stranger in strangers[1:20])
        assert read_response(connect(request("/admitted", **token))) == OK
        assert len(connect.server.edge.turns) <= 8


def test_connections_that_have_gone_do_not_wait_for_their_turn(monkeypatch):
    """Whoever was connected before it sent something has a connection of its own while it waits."""
    waiting = {}
    monkeypatch.setattr(Turns, "wait", lambda turns, network, function: waiting.update({function: 1}))
    monkeypatch.setattr(Turns, "leave", lambda turns, network, function: waiting.pop(function, None))
    token = {"Authorization": f"Bearer {TOKEN}"}
    with serving(SmallApp(), max_connections=8, header_timeout=600) as connect:
        strangers = [connect() for _ in range(5)]
        assert read_response(connect(request("/admitted", **token))) == OK
        for stranger in strangers:
            stranger.sendall(request())
        while len(waiting) < 5:
            assert read_response(connect(request("/admitted", Connection="close", **token))) == OK
        for stranger in strangers:
            stranger.close()
        for _ in range(20):
            connect(request())
        assert read_response(connect(request("/admitted", **token))) == OK
        assert len(waiting) <= 8


def test_a_flood_of_strangers_does_not_close_an_admitted_connection():
    with serving(SmallApp(), max_connections=8, idle_timeout=600) as connect:
        client = connect(request("/admitted"))
        assert read_response(client) == OK
        for _ in range(50):
            assert read_response(connect(request())) == OK
        client.sendall(request("/admitted"))
        assert read_response(client) == OK


@pytest.mark.parametrize("part", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_header_that_does_not_arrive_ends_the_connection(part):
    with serving(SmallApp(), header_timeout=0.1) as connect:
        assert is_closed(connect(part))
        client = connect(request("/admitted"))
        assert read_response(client) == OK
        if part:
            client.sendall(part)
            assert is_closed(client)


def test_an_idle_connection_is_closed():
    with serving(SmallApp(), idle_timeout=0.1) as connect:
        client = connect(request("/admitted"))
        assert read_response(client) == OK
        assert is_closed(client)


@pytest.mark.parametrize("path", ["/", "/admitted"])
def test_who_sends_an_unwanted_body_slowly_gets_a_response_and_is_closed(path):
    with serving(SmallApp(), idle_timeout=600) as connect:
        client = connect(request(path, "POST", **{"Content-Length": 100_000}) + b"{")
        assert read_response(client) == OK
        client.sendall(b"x")
        assert is_closed(client)


def test_an_unwanted_body_that_arrives_leaves_the_connection_usable():
    with serving(SmallApp()) as connect:
        client = connect(request("/", "POST", **{"Content-Length": 4}) + b"{")
        assert read_response(client) == OK
        client.sendall(b"xx}")
        client.sendall(request())
        assert read_response(client) == OK


def test_an_unwanted_body_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(guarded_connection, "DRAIN_TIMEOUT", 600.0)
    with serving(SmallApp()) as connect:
        client = connect(request("/", "POST", **{"Content-Length": 1 << 40}))
        assert read_response(client) == OK
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            client.sendall(b"x" * (100 << 20))


def test_who_does_not_read_is_closed_and_holds_no_one_up():
    with serving(SmallApp(), write_timeout=0.1) as connect:
        silent = [connect(request("/large"), size=4096) for _ in range(3)]
        assert read_response(connect(request())) == OK
        while len(connect.server.edge.table) > 1:
            assert read_response(connect(request(Connection="close"))) == OK
        assert all(is_closed(client) for client in silent)


def test_a_stranger_gets_one_response_to_a_pipeline_and_an_admitted_client_all():
    app = SmallApp()
    with serving(app) as connect:
        assert is_closed(connect(request() * 500))
        assert app.requests == 1
        client = connect(request("/admitted", Authorization=f"Bearer {TOKEN}") * 3)
        received = b""
        while received.count(b"hello") < 3:
            received += client.recv(65536)
        assert app.requests == 4


def test_a_request_with_a_token_does_not_wait_for_its_turn(monkeypatch):
    """The turn of strangers never comes here."""
    monkeypatch.setattr(Turns, "wait", lambda turns, network, function: None)
    with serving(SmallApp()) as connect:
        stranger = connect(request())
        for name in ("Authorization", "authorization"):
            client = connect(request("/admitted", **{name: f"Bearer {TOKEN}"}))
            assert read_response(client) == OK
            client.sendall(request())
            assert read_response(client) == OK
        wrong = connect(request("/admitted", Authorization="Bearer wrong"))
        for waiting in (stranger, wrong):
            waiting.settimeout(0)
            with pytest.raises(BlockingIOError):
                waiting.recv(1)


def test_invalid_requests_do_not_fill_the_log(caplog):
    logger = logging.getLogger("uvicorn.error")
    logger.filters.clear()
    with serving(SmallApp()) as connect:
        logger.addHandler(caplog.handler)
        for _ in range(50):
            assert read_response(connect(b"\0\r\n\r\n"))[0] == "HTTP/1.1 400 Bad Request"
    logger.removeHandler(caplog.handler)
    assert sum("Invalid HTTP request" in record.getMessage() for record in caplog.records) == 5


def test_strangers_wait_as_long_as_requests_with_a_token_are_served(monkeypatch):
    counts = []
    begin, end = Turns.begin_client, Turns.end_client
    monkeypatch.setattr(Turns, "begin_client", lambda turns: (counts.append(1), begin(turns)))
    monkeypatch.setattr(Turns, "end_client", lambda turns: (counts.append(-1), end(turns)))
    token = {"Authorization": f"Bearer {TOKEN}"}
    with serving(SmallApp()) as connect:
        client = connect(request("/admitted", **token))
        assert read_response(client) == OK
        client.sendall(request("/admitted", **token))
        assert read_response(client) == OK
        assert read_response(connect(request())) == OK
        assert counts == [1, -1, 1, -1]
        client.sendall(b"GET /admi")  # ... and leaves
        client.close()
        assert read_response(connect(request("/", **token))) == OK  # a token, though nothing needs it
        while sum(counts):
            assert read_response(connect(request())) == OK
    assert counts.count(1) == 4


def test_hundreds_of_strangers_that_send_at_once_are_read_in_parts():
    """And an admitted client is not among them."""
    with serving(SmallApp(), header_timeout=600) as connect:
        selector = connect.server.edge.selector
        client = connect(request("/admitted", Authorization=f"Bearer {TOKEN}"))
        assert read_response(client) == OK
        strangers = [connect(b"GET / HTTP/1.1\r\n") for _ in range(40)]
        while len(selector._marked) < 40:
            assert read_response(connect(request(Connection="close"))) == OK
        for stranger in strangers:
            stranger.sendall(b"Host: localhost\r\n\r\n")
        client.sendall(request("/admitted"))
        assert read_response(client) == OK
        assert [read_response(stranger) for stranger in strangers] == [OK] * 40
        late = strangers[0]
        late.sendall(request("/admitted", Authorization=f"Bearer {TOKEN}"))
        assert read_response(late) == OK
        assert len(selector._marked) == 39
    assert not selector._marked


@pytest.mark.parametrize(
    "sent", [request(), request() * 3, request("/", "POST", **{"Content-Length": 100}) + b"{"]
)
def test_connections_that_have_gone_need_no_garbage_collector(sent, monkeypatch):
    made = weakref.WeakSet()
    connection_made = GuardedConnection.connection_made
    monkeypatch.setattr(
        GuardedConnection, "connection_made", lambda one, wire: (made.add(one), connection_made(one, wire))
    )
    gc.disable()
    try:
        with serving(SmallApp(), idle_timeout=0.1) as connect:
            for _ in range(10):
                assert is_closed(connect(sent))
            while len(made) > 1:
                assert read_response(connect(request(Connection="close"))) == OK
    finally:
        gc.enable()


class FullListener:
    """A listening socket of a process that cannot open any more files."""

    def __init__(self):
        self._ends = socket.socketpair()
        self._ends[1].send(b"somebody waits")

    def fileno(self):
        return self._ends[0].fileno()

    def setblocking(self, blocking):
        pass

    def accept(self):
        raise OSError(errno.EMFILE, "Too many open files")


def test_accepting_stops_for_a_while_when_no_file_descriptor_is_left(caplog, monkeypatch):
    monkeypatch.setattr(acceptor, "ACCEPT_RETRY", 600)
    made_room = []

    async def run():
        edge = Edge(ServeSettings(), ConnectionTable(5), Turns(), StrangerSelector())
        monkeypatch.setattr(edge.table, "make_room", lambda: made_room.append(1))
        accepting = Acceptor(FullListener(), edge, None)
        for _ in range(20):
            await asyncio.sleep(0)
        accepting.close()
        edge.selector.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert made_room == [1]
    assert [record.getMessage() for record in caplog.records] == [
        "No connection can be accepted: [Errno 24] Too many open files. Raise `ulimit -n`, or lower max_connections"
    ]
