"""Accepts connections, a few per turn of the event loop, and lets strangers wait as bare sockets.

asyncio accepts up to `backlog` connections before anything else runs, and logs as many tracebacks when no file
descriptor is left. So this is our own. It reads what each connection has sent: one with a valid token starts at once,
any other waits for its turn as a bare socket, which costs a quarter of a connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from metaxc.serve.connection_table import network_of
from metaxc.serve.guarded_connection import READ_BYTES, Edge, GuardedConnection

log = logging.getLogger("metaxc.serve")
ACCEPTS_PER_TURN = 8  # connections; each costs about 0.04 ms, for which requests that are ready have to wait
ACCEPT_RETRY = 0.5  # seconds without accepting after the system had no file descriptor or memory left


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
        self._socket, self._edge, self._start = accepted, edge, start
        if edge.table.make_room():
            edge.table.add(self)
            edge.turns.wait(network, self._take_turn)
        else:
            self.abort()

    def abort(self) -> None:
        """Close it."""
        self._edge.turns.leave(self.network, self._take_turn)
        self._socket.close()

    def _take_turn(self) -> None:
        self._edge.table.discard(self)
        self._start()


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
        except BlockingIOError:  # what arrives later may have a token, and must be noticed
            start(b"")
            return
        except OSError:
            received = b""
        if not received:  # the client has gone
            accepted.close()
        elif self._edge.has_token(received):
            start(received, serve_first=True)
        else:
            WaitingSocket(accepted, network, self._edge, partial(start, received))

    def _start(
        self, accepted: socket.socket, network: str, received: bytes, serve_first: bool = False
    ) -> None:
        if not self._edge.table.make_room():
            accepted.close()
            return
        connection = self._make_connection(network, received)
        self._edge.table.add(connection)
        if serve_first:
            connection.serve_first()
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: connection, accepted))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)


def defer_accept(listening: socket.socket, seconds: float) -> None:
    """Let the system keep a new connection for itself until it has data, or until some seconds have passed. Linux only:
    elsewhere, and when the system keeps too many, a connection without data is accepted and has its header timeout."""
    if hasattr(socket, "TCP_DEFER_ACCEPT") and seconds >= 1:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(seconds))
