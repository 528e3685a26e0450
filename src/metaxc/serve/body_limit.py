"""The innermost middleware: reads the body of a request, within limits of size, time and memory."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metaxc.errors import MetaxcError
from metaxc.serve.http_errors import BusyError, RequestTimeoutError, TooLargeError, respond_to_error
from metaxc.serve.serve_settings import ServeSettings


class BodyLimit:
    """Reads the body, up to its limit, then passes it on as a whole.

    A route without a queue gets no body. A request counts from the moment when its body is complete: clients that
    announce a body and send it slowly take nothing from others but the memory of what they have sent.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings):
        self.app, self.limits, self.timeout = app, settings.limits, settings.connections.body_timeout
        self._open_requests = self._total_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["route_policy"].queue is None:
            await self.app(scope, _replay(b"", receive), send)
            return
        body = bytearray()
        try:
            try:
                self._check_open_requests()
                if not await self._read_body(body, Headers(scope=scope), receive):
                    return  # the client disconnected
                self._check_open_requests()
            except MetaxcError as error:
                await respond_to_error(error)(scope, receive, send)
                return
            self._open_requests += 1
            try:
                await self.app(scope, _replay(bytes(body), receive), send)
            finally:
                self._open_requests -= 1
        finally:
            self._total_bytes -= len(body)

    async def _read_body(self, body: bytearray, headers: Headers, receive: Receive) -> bool:
        """Read the body; False when the client disconnected first."""
        limit = self.limits.max_body_bytes
        announced = headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > limit:
            raise self._too_large(f"{int(announced):,} bytes")
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return False
                    part = message.get("body", b"")
                    body += part
                    self._total_bytes += len(part)
                    if len(body) > limit:
                        raise self._too_large(f"more than {limit:,} bytes")
                    if self._total_bytes > self.limits.max_total_body_bytes:
                        raise BusyError(
                            "Too many large requests at once",
                            got=f"{self._total_bytes:,} bytes of request bodies",
                            expected=f"at most {self.limits.max_total_body_bytes:,}",
                            fix="retry after Retry-After seconds, or send fewer items per request",
                        )
                    if not message.get("more_body", False):
                        return True
        except TimeoutError:
            raise RequestTimeoutError(
                "The request body did not arrive in time",
                expected=f"at most {self.timeout:g} seconds",
                fix="send fewer items per request",
            ) from None

    def _check_open_requests(self) -> None:
        if self._open_requests >= self.limits.max_requests:
            raise BusyError(
                "Too many requests at once",
                got=f"{self._open_requests} open requests",
                expected=f"at most {self.limits.max_requests}",
                fix="retry after Retry-After seconds",
            )

    def _too_large(self, got: str) -> TooLargeError:
        return TooLargeError(
            "The request body is too large",
            got=got,
            expected=f"at most {self.limits.max_body_bytes:,} bytes",
            fix="send fewer items per request",
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` whose first message is a whole body."""
    replayed = False

    async def receive_body() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body
