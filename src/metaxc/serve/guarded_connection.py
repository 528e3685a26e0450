"""A connection of the HTTP server, which knows whether its client was admitted and what it waits for."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from metaxc.serve.bearer_tokens import has_token
from metaxc.serve.connection_table import ConnectionTable
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.stranger_turns import StrangerSelector, Turns

DRAIN_TIMEOUT = (
    2.0  # seconds for the rest of a body that is not wanted; closing at once would destroy the response
)
READ_BYTES = 16 << 10  # per read: what a stranger sends after a request is in memory until that is answered
WRITE_PROGRESS = 64 << 10  # bytes that an admitted client has to read per write timeout
AUTHORIZATION = re.compile(rb"\r\nauthorization:[ \t]*([^\r\n]*)", re.IGNORECASE)
Waiting = Literal["header", "drain", "write", "client", "service"]


@dataclass(frozen=True)
class Edge:
    """What all connections of a server share.

    Args:
        settings: The settings.
        table: The open connections.
        turns: The strangers whose data waits to be parsed.
        selector: Of the event loop.
    """

    settings: ServeSettings
    table: ConnectionTable
    turns: Turns
    selector: StrangerSelector

    def has_token(self, data: bytes) -> bool:
        """Whether the header of a request, as far as it has arrived, has a valid token."""
        found = AUTHORIZATION.search(data)
        return found is not None and has_token(found[1].decode("latin-1"), self.settings.tokens)


class GuardedConnection(H11Protocol):
    """uvicorn's connection, which knows whether it was admitted and what it waits for.

    Until the app calls `admit`, because a request has passed the access checks, its data waits for a turn, unless it
    has a valid token.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: Of the app; a request finds its connection there.
        edge: The server's.
        network: Of the client.
        received: Data that has been read already, and has had its turn or has a valid token.
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
        self.admitted = self._aborted = self._served = False
        self._descriptor = -1
        self._unparsed = bytearray()
        self._drained = 0
        self._since = self.loop.time()
        self._waiting: tuple[Waiting, object] = "header", None
        self._unsent = 0

    def admit(self) -> None:
        """A request of this connection has passed the access checks."""
        self.admitted = True
        self._edge.table.admit(self)
        self._edge.selector.unmark(self._descriptor)

    def serve_first(self) -> None:
        """Let strangers wait until the request that is arriving has been answered."""
        if not self._served and self._edge.settings.tokens.required:
            self._served = True
            self._edge.turns.begin_client()

    def _end_service(self) -> None:
        if self._served:
            self._served = False
            self._edge.turns.end_client()

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
        self._descriptor = transport.get_extra_info("socket").fileno()
        if not self._served:
            self._edge.selector.mark(self._descriptor)
        if self._aborted:
            transport.abort()
        if self._received:  # before anything that the transport reads
            self.loop.call_soon(self._parse, self._received)
            self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._edge.table.discard(self)
        self._edge.selector.unmark(self._descriptor)
        self._end_service()
        for waiting in (self._take_turn, self.abort):
            self._edge.turns.leave(self.network, waiting)
        self._unparsed.clear()
        super().connection_lost(exc)
        # These refer back to the connection, and only the garbage collector would find that out: with hundreds of new
        # connections per second it would stop everything for 0.1 seconds every few seconds.
        self.app_state, self.cycle, self.scope = {}, None, None  # type: ignore[assignment]
        self._waiting = "header", None

    def data_received(self, data: bytes) -> None:
        draining = self._waits_for == "drain"
        if draining:
            self._drained += len(data)
            if self._drained > self._edge.settings.limits.max_body_bytes:
                self.abort()
                return
        if not self._unparsed and (self.admitted or (not draining and self._edge.has_token(data))):
            if not draining:
                self.serve_first()
            super().data_received(data)
            return
        self._unset_keepalive_if_required()
        self.flow.pause_reading()
        self._unparsed += data
        if len(self._unparsed) == len(data):
            self._edge.turns.wait(self.network, self._take_turn)

    def on_response_complete(self) -> None:
        self._drained = 0
        self._end_service()
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
                # hundreds may be overdue, and closing one costs system calls
                self._edge.turns.wait(self.network, self.abort)
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
