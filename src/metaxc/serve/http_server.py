"""The HTTP server: uvicorn, with an edge that strangers cannot block.

uvicorn parses HTTP and runs the app. Of what a service needs that is reachable without a proxy it offers a timeout of
idle connections (`timeout_keep_alive`), a limit of a header's size (`h11_max_incomplete_event_size`), and a limit of
concurrency that answers 503 to authorised clients as well and keeps no file descriptor free. It has no timeout for a
header, for a client that does not read, or for an unread body. asyncio accepts up to `backlog` connections before
anything else runs, and logs as many tracebacks when no file descriptor is left. So three parts are our own:

- `Acceptor` accepts a few connections per turn of the event loop. It reads what each has sent: one with a valid token
  starts at once, any other waits for its turn as a bare socket, which costs a quarter of a connection.
- `Turns` lets one stranger per turn of the event loop be answered, so that other clients wait for one stranger at most.
- `GuardedConnection` knows what a connection waits for, and ends it when that takes too long.

The look at the token decides the order only. Access is decided by the app, for each request.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from metaxc.serve.connection_table import ConnectionTable, connection_capacity, network_of
from metaxc.serve.log_limit import limit_logs
from metaxc.serve.middleware import has_token
from metaxc.serve.serve_settings import ServeSettings

log = logging.getLogger("metaxc.serve")
ACCEPTS_PER_TURN = 8  # connections; each costs about 0.04 ms, for which requests that are ready have to wait
ACCEPT_RETRY = 0.5  # seconds without accepting after the system had no file descriptor or memory left
SWEEP_INTERVAL = 1.0  # seconds between two looks at the timeouts; each is kept with this precision
DRAIN_TIMEOUT = (
    2.0  # seconds for the rest of a body that is not wanted; closing at once would destroy the response
)
MAX_HEADER_BYTES = 16 << 10
READ_BYTES = 16 << 10  # per read: what a stranger sends after a request is in memory until that is answered
WRITE_PROGRESS = 64 << 10  # bytes that an admitted client has to read per write timeout
AUTHORIZATION = re.compile(rb"\r\nauthorization:[ \t]*([^\r\n]*)", re.IGNORECASE)
Waiting = Literal["header", "drain", "write", "client", "service"]


class Turns:
    """Runs waiting functions in their order, one per turn of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Waiting functions."""
        return len(self._waiting)

    def wait(self, function: Callable[[], None]) -> None:
        """Call a function when its turn comes."""
        self._waiting.append(function)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run_first)

    def _run_first(self) -> None:
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:  # `call_soon` means the next turn: what is ready in this one goes first
                asyncio.get_running_loop().call_soon(self._run_first)


@dataclass(frozen=True)
class Edge:
    """What all connections of a server share.

    Args:
        settings: The settings.
        table: The open connections.
        turns: The strangers whose data waits to be parsed.
    """

    settings: ServeSettings
    table: ConnectionTable
    turns: Turns

    def has_token(self, data: bytes) -> bool:
        """Whether the header of a request, as far as it has arrived, has a valid token."""
        found = AUTHORIZATION.search(data)
        return found is not None and has_token(found[1].decode("latin-1"), self.settings.tokens)


class WaitingSocket:
    """A stranger that was accepted and waits for its turn, without the objects that a connection needs.

    Args:
        accepted: The socket.
        network: Of the client.
        edge: The server's.
        start: Called when its turn has come.
    """

    at_work = False

    def __init__(self, accepted: socket.socket, network: str, edge: Edge, start: Callable[[], None]):
        self.network = network
        self._socket, self._table, self._start = accepted, edge.table, start
        self._gone = False
        if edge.table.make_room():
            edge.table.add(self)
            edge.turns.wait(self._take_turn)
        else:
            self.abort()

    def abort(self) -> None:
        """Close it."""
        self._gone = True
        self._socket.close()

    def _take_turn(self) -> None:
        if not self._gone:
            self._table.discard(self)
            self._start()


class GuardedConnection(H11Protocol):
    """uvicorn's connection, which knows whether it was admitted and what it waits for.

    Until the app calls `admit`, because a request has passed the access checks, its data waits for a turn.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: Of the app; a request finds its connection there.
        edge: The server's.
        network: Of the client.
        received: Data that has been read already, and has had its turn.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        edge: Edge,
        network: str,
        received: bytes,
    ):
        super().__init__(config, server_state, {**app_state, "connection": self})
        self._edge, self.network, self._received = edge, network, received
        self.admitted = self._aborted = False
        self._unparsed = bytearray()
        self._drained = 0
        self._since = self.loop.time()
        self._waiting: tuple[Waiting, object] = "header", None
        self._unsent = 0

    def admit(self) -> None:
        """A request of this connection has passed the access checks."""
        self.admitted = True
        self._edge.table.admit(self)

    @property
    def at_work(self) -> bool:
        """Whether the service works on a request of it, which has arrived completely."""
        return self._waits_for == "service"

    def abort(self) -> None:
        """Close it at once, unsent data included."""
        self._aborted = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio; else 256 KB
        if self._aborted:
            transport.abort()
        if self._received:  # before anything that the transport reads
            self.loop.call_soon(self._parse, self._received)
            self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._edge.table.discard(self)
        self._unparsed.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        draining = self._waits_for == "drain"
        if draining:
            self._drained += len(data)
            if self._drained > self._edge.settings.limits.max_body_bytes:
                self.abort()
                return
        if not self._unparsed and (self.admitted or (not draining and self._edge.has_token(data))):
            super().data_received(data)
            return
        self._unset_keepalive_if_required()
        self.flow.pause_reading()
        self._unparsed += data
        if len(self._unparsed) == len(data):
            self._edge.turns.wait(self._take_turn)

    def on_response_complete(self) -> None:
        self._drained = 0
        pipelined = self.conn.their_state is h11.DONE and (self.conn.trailing_data[0] or self._unparsed)
        if pipelined and not self.admitted:
            self.transport.close()  # else the responses to one packet of small requests would take seconds
        super().on_response_complete()

    def check_timeout(self, now: float) -> None:
        """Close the connection, at its turn, if it has waited too long for its client."""
        waiting: tuple[Waiting, object] = self._waits_for, self.cycle
        unsent = self.transport.get_write_buffer_size()
        if waiting != self._waiting:
            self._waiting, self._since, self._unsent = waiting, now, unsent
        elif now - self._since >= self._timeout(waiting[0]):
            if not self.admitted or unsent > self._unsent - WRITE_PROGRESS:
                self._edge.turns.wait(
                    self.abort
                )  # hundreds may be overdue, and closing one costs system calls
            self._since, self._unsent = now, unsent

    @property
    def _waits_for(self) -> Waiting:
        """For whom or what the connection waits: "client" is a body, which has a timeout of its own, or a new request,
        for which uvicorn has one."""
        if self.transport.get_write_buffer_size():
            return "write"
        if self.cycle is None:
            return "header"
        if self.cycle.response_complete:
            if self.conn.their_state is h11.SEND_BODY:
                return "drain"
            return "header" if self.conn.trailing_data[0] or self._unparsed else "client"
        return "client" if self.cycle.more_body else "service"

    def _timeout(self, waiting: Waiting) -> float:
        settings = self._edge.settings.connections
        timeouts = {
            "header": settings.header_timeout,
            "drain": DRAIN_TIMEOUT,
            "write": settings.write_timeout,
        }
        return timeouts.get(waiting, float("inf"))

    def _take_turn(self) -> None:
        data = bytes(self._unparsed)
        self._unparsed.clear()
        self.flow.resume_reading()
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)


class Acceptor:
    """Accepts the connections of a listening socket, a few per turn of the event loop.

    Args:
        listening: The socket.
        edge: The server's.
        make_connection: Makes a connection from the client's network and what has been received.
    """

    def __init__(
        self,
        listening: socket.socket,
        edge: Edge,
        make_connection: Callable[[str, bytes], GuardedConnection],
    ):
        self._listening, self._edge, self._make_connection = listening, edge, make_connection
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[Any]] = set()
        self._closed = False
        listening.setblocking(False)
        defer_accept(listening, edge.settings.connections.header_timeout)
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        self._closed = True
        self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """Wait for connections that were accepted last; called by uvicorn."""
        await asyncio.gather(*self._starting)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except (
                OSError
            ) as error:  # no file descriptor or memory left: other parts of the process took them
                log.error(
                    "No connection can be accepted: %s. Raise `ulimit -n`, or lower max_connections", error
                )
                self._edge.table.make_room()
                self._loop.remove_reader(self._listening)
                self._loop.call_later(ACCEPT_RETRY, self._resume)
                return
            self._receive(accepted, network_of(address[0]))

    def _receive(self, accepted: socket.socket, network: str) -> None:
        accepted.setblocking(False)
        start = partial(self._start, accepted, network)
        try:
            received = accepted.recv(READ_BYTES)
        except BlockingIOError:
            start(b"")
            return
        except OSError:
            received = b""
        if not received:  # the client has gone
            accepted.close()
        elif self._edge.has_token(received):
            start(received)
        else:
            WaitingSocket(accepted, network, self._edge, partial(start, received))

    def _start(self, accepted: socket.socket, network: str, received: bytes) -> None:
        if not self._edge.table.make_room():
            accepted.close()
            return
        connection = self._make_connection(network, received)
        self._edge.table.add(connection)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: connection, accepted))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)


def defer_accept(listening: socket.socket, seconds: float) -> None:
    """Let the system keep a new connection for itself until it has data, or until some seconds have passed. Linux only:
    elsewhere, and when the system keeps too many, a connection without data is accepted and has its header timeout."""
    if hasattr(socket, "TCP_DEFER_ACCEPT") and seconds >= 1:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(seconds))


class HttpServer(uvicorn.Server):
    """A server for the app, which is run with `run(sockets=[...])`.

    Args:
        app: The app.
        settings: Its settings.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings):
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=settings.connections.idle_timeout,  # type: ignore[arg-type]
            timeout_graceful_shutdown=settings.network.shutdown_timeout,
        )
        super().__init__(config)
        limit_logs()
        capacity = connection_capacity(settings.connections.max_connections)
        self.edge = Edge(settings, ConnectionTable(capacity), Turns())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then accept the connections of the sockets; uvicorn itself listens to none."""
        await super().startup(sockets=[])
        for listening in sockets or []:
            self.servers.append(Acceptor(listening, self.edge, self._make_connection))  # type: ignore[arg-type]
        self._sweep()

    def _make_connection(self, network: str, received: bytes) -> GuardedConnection:
        state = self.lifespan.state
        return GuardedConnection(self.config, self.server_state, state, self.edge, network, received)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in self.edge.table:
            if isinstance(connection, GuardedConnection) and connection.transport is not None:
                connection.check_timeout(loop.time())
        loop.call_later(SWEEP_INTERVAL, self._sweep)
