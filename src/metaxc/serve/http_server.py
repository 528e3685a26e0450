"""The HTTP server: uvicorn, with an edge that strangers cannot block.

uvicorn parses HTTP and runs the app. Of what a service needs that is reachable without a proxy it offers a timeout of
idle connections (`timeout_keep_alive`), a limit of a header's size (`h11_max_incomplete_event_size`), and a limit of
concurrency that answers 503 to authorised clients as well and keeps no file descriptor free. It has no timeout for a
header, for a client that does not read, or for an unread body. So three parts are our own:

- `acceptor` accepts a few connections per turn of the event loop.
- `stranger_turns` bounds the part of the event loop's time that strangers get.
- `guarded_connection` knows what a connection waits for, and ends it when that takes too long.

The look at the token decides the order only. Access is decided by the app, for each request.
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp

from metaxc.serve.acceptor import Acceptor
from metaxc.serve.connection_table import ConnectionTable, connection_capacity
from metaxc.serve.guarded_connection import Edge, GuardedConnection
from metaxc.serve.log_limit import limit_logs
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.stranger_turns import StrangerSelector, Turns

SWEEP_INTERVAL = 1.0  # seconds between two looks at the timeouts; each is kept with this precision
MAX_HEADER_BYTES = 16 << 10


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
        self.edge = Edge(settings, ConnectionTable(capacity), Turns(), StrangerSelector())

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal ends it, in an event loop that strangers do not fill."""
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self.edge.selector)) as runner:
            runner.run(self.serve(sockets=sockets))

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
