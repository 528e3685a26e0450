"""What every request passes before the app sees it: who may ask, how much, and what each answer carries.

Three plain ASGI layers, from the outside in. `SecurityHeaders` adds headers, counts requests, and turns a
failure into an answer without its traceback. `AccessControl` refuses by host name, token, number of requests and state
of the service, before a byte of the body is read. `BodyLimit` reads the body up to its limit, whether or not its length
was announced.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metaxc.errors import MetaxcError
from metaxc.serve.http_errors import (
    BusyError,
    ForbiddenError,
    NotReadyError,
    SlowError,
    TokenError,
    TooLargeError,
    answer_to,
)
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.serve_settings import ServeSettings, is_loopback

OPEN = {"/", "/healthz", "/readyz", "/openapi.json"}
PROBES = {"/healthz", "/readyz"}
READ_BY_POST = {"/v1/search", "/v1/preview", "/v1/represent"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_open(path: str) -> bool:
    """Whether anybody may ask: probes, the description of the service, and the page (its data is not)."""
    return path in OPEN or path.startswith("/static/")


def only_reads(method: str, path: str) -> bool:
    """Whether a request changes nothing."""
    return method in ("GET", "HEAD", "OPTIONS") or path in READ_BY_POST


class SecurityHeaders:
    """The outermost layer: headers, counts, and no traceback for a client."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            made = answer_to(error)
            if status:  # half an answer is out: nothing can be put right, the connection ends
                raise
            await made(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.answered(scope["method"], route, status or 499, time.perf_counter() - started)


class AccessControl:
    """Refuses before the body is read.

    Args:
        app: What is guarded.
        settings: Tokens, names and bounds.
        state: "opening", "ready" or "closing".
        room: Raises `BusyError` where a request of that method and path would find its queue full. Under overload most
            requests are refused, and what a refusal costs is missing where the answers are made.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        state: Callable[[], str],
        room: Callable[[str, str], None] = lambda method, path: None,
    ):
        self.app, self.settings, self.state, self.room = app, settings, state, room
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope))
        except MetaxcError as error:
            await answer_to(error)(scope, receive, send)
            return
        self._inside += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._inside -= 1

    def _check(self, method: str, path: str, headers: Headers) -> None:
        if self.settings.guarded:
            if not is_open(path):
                self._check_token(method, path, headers.get("authorization", ""))
        elif not self._is_ours(headers.get("host", "")):
            raise ForbiddenError(
                "The service was called by a name that is not its own",
                got=headers.get("host", "no Host header"),
                expected="localhost, 127.0.0.1, or one of the names in its settings",
                fix="without a token the service answers this machine only",
            )
        if self._inside >= self.settings.most_requests:
            raise BusyError(
                "Too many requests at once",
                got=f"{self._inside} open",
                expected=f"at most {self.settings.most_requests}",
                fix="ask again after Retry-After seconds",
            )
        if path.startswith("/v1/") and self.state() != "ready":
            raise NotReadyError(f"The service is {self.state()}", fix="ask again when /readyz answers 200")
        self.room(method, path)

    def _check_token(self, method: str, path: str, header: str) -> None:
        kind, _, token = header.partition(" ")
        given = token.strip() if kind.lower() == "bearer" else ""
        writes, reads = same(given, self.settings.write_token), same(given, self.settings.read_token)
        if not writes and not reads:
            raise TokenError(
                "A token is needed" if not given else "The token is not right",
                expected="Authorization: Bearer TOKEN",
                fix="ask whoever runs the service for one",
            )
        if not writes and not only_reads(method, path):
            raise ForbiddenError("This token may read, not write", expected="the write token")

    def _is_ours(self, host: str) -> bool:
        """Against DNS rebinding: a web page can make a browser call this machine by the page's own name."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return is_loopback(name) or name in (self.settings.host, *self.settings.names)


class BodyLimit:
    """Reads the body, up to its bound, then passes it on whole."""

    def __init__(self, app: ASGIApp, settings: ServeSettings):
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await self._read(Headers(scope=scope), receive)
        except MetaxcError as error:
            await answer_to(error)(scope, receive, send)
            return
        if body is None:
            return  # the client has gone
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        announced = headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > self.settings.most_body:
            raise self._too_large(f"{int(announced):,} bytes")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.settings.most_body:
                        raise self._too_large(f"more than {self.settings.most_body:,} bytes")
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise SlowError("The body did not arrive in time", fix="send it faster, or in parts") from None

    def _too_large(self, got: str) -> TooLargeError:
        return TooLargeError(
            "The body is too large",
            got=got,
            expected=f"at most {self.settings.most_body:,} bytes",
            fix="send fewer items per request",
        )


def same(given: str, token: SecretStr | None) -> bool:
    """Whether a token is the one given, in a time that does not depend on how much of it is right."""
    if token is None:
        return False
    return hmac.compare_digest(given.encode("utf-8"), token.get_secret_value().encode("utf-8"))
