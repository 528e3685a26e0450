"""The policy of each route, and the middleware that enforces it before a handler runs.

A route is declared once, with a `RoutePolicy`, in the app's `RouteTable`. Access control, the queue that runs a request
and the errors in the OpenAPI description all follow from that declaration.

Three plain ASGI layers, from the outside in: `SecurityHeaders` adds headers, counts requests and hides tracebacks;
`AccessControl` rejects by host name, token, origin, content type, load and state of the service before the body is
read; `BodyLimit` reads the body up to its limit, whether or not its length was announced. A route without a queue reads
no body and is not counted, so that nobody can take room from others by calling it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metaxc.errors import DataError, MetaxcError
from metaxc.serve.bearer_tokens import has_token, is_same_token, read_bearer
from metaxc.serve.callers import identify_client
from metaxc.serve.http_errors import (
    STATUS_TITLES,
    ErrorResponse,
    ForbiddenError,
    UnauthorizedError,
    respond_to_error,
)
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_origin import check_content_type, check_origin
from metaxc.serve.serve_settings import ServeSettings, is_loopback

Access = Literal["probe", "public", "read", "write"]
QueueName = Literal["search", "read", "write"]
COMMON_ERRORS = (403, 408, 413, 415, 422, 429, 500, 503)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
RESPONSE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class RoutePolicy:
    """Who may call a route, and which queue runs it.

    Args:
        access: "probe" skips every check and limit, "public" needs no token, "read" accepts either token, "write" needs
            the write token.
        queue: The queue that runs the request; None for a route that does not need an open catalog.
    """

    access: Access
    queue: QueueName | None = None

    def __post_init__(self) -> None:
        if self.queue is not None and (self.queue == "write") != (self.access == "write"):
            raise ValueError(f"{self}: writes, and nothing else, run in the write queue")

    @property
    def needs_token(self) -> bool:
        """Whether a caller needs a token, if the service has any."""
        return self.access in ("read", "write")


PROBE, PUBLIC, READ_METRICS = RoutePolicy("probe"), RoutePolicy("public"), RoutePolicy("read")
READ, SEARCH = RoutePolicy("read", "read"), RoutePolicy("read", "search")
WRITE = RoutePolicy("write", "write")


class RouteTable:
    """The routes of an app, each with its policy; `requires_token` says whether the service has tokens."""

    def __init__(self, app: FastAPI, *, requires_token: bool):
        self._app, self._requires_token = app, requires_token
        self.policies: list[tuple[BaseRoute, RoutePolicy]] = []

    def add(
        self, method: str, path: str, policy: RoutePolicy, *errors: int, responses: Any = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a route; the decorated function handles it. The OpenAPI description gets the errors that follow from
        the policy, the statuses in `errors`, and `responses`; FastAPI gets the other options."""
        dependencies: list[Any] = [Depends(reject_unknown_parameters)] if policy.queue else []
        if policy.needs_token and self._requires_token:
            dependencies.append(Security(HTTPBearer(scheme_name="token", auto_error=False)))

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            self._app.add_api_route(
                path,
                handler,
                methods=[method],
                dependencies=dependencies,
                responses={**self._describe_errors(policy, errors), **(responses or {})},
                **options,
            )
            self.policies.append((self._app.routes[-1], policy))
            return handler

        return register

    def find_policy(self, scope: Scope) -> RoutePolicy:
        """The policy of the route that will handle a request. A request without a route (404, 405) needs a token like
        any other, so that nobody can explore the service without one, unless its path is open to everybody."""
        for route, policy in self.policies:
            match, _ = route.matches(scope)
            if match is Match.FULL or (match is Match.PARTIAL and not policy.needs_token):
                return policy
        return RoutePolicy("read" if scope["method"] in SAFE_METHODS else "write")

    def _describe_errors(self, policy: RoutePolicy, errors: tuple[int, ...]) -> dict[int | str, Any]:
        if policy.access == "probe":
            return {}
        statuses = {*COMMON_ERRORS, *errors}
        if policy.access == "write":
            statuses.add(507)
        if policy.needs_token and self._requires_token:
            statuses.add(401)
        described: dict[int | str, Any] = {}
        for status in sorted(statuses):
            described[status] = {"model": ErrorResponse, "description": STATUS_TITLES[status]}
            if status in (429, 503):
                seconds = {"description": "Seconds to wait", "schema": {"type": "integer"}}
                described[status]["headers"] = {"Retry-After": seconds}
        return described


def reject_unknown_parameters(request: Request) -> None:
    """Reject a query parameter that the route does not have: a misspelt filter must not return everything."""
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise DataError(
            "Unknown query parameter",
            got=repr(unknown),
            expected=", ".join(sorted(known)) or "none",
            fix="see /openapi.json",
        )


class SecurityHeaders:
    """The outermost layer: response headers, request metrics, and no traceback for a client."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in RESPONSE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            response = respond_to_error(error)
            if status:  # the response has begun and cannot be corrected: end the connection
                raise
            await response(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", None)
            seconds = time.perf_counter() - started
            self.metrics.observe_request(scope["method"], route, status or 499, seconds)


class AccessControl:
    """Rejects requests before their body is read, by the policy of their route.

    Args:
        app: The app to protect.
        settings: Tokens, host names and limits.
        routes: The policies.
        check_capacity: Raises an error when the named queue does not accept requests of a client. Under overload most
            requests are rejected here, and what a rejection costs is lost for answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        routes: RouteTable,
        check_capacity: Callable[[QueueName, Hashable], None],
    ):
        self.app, self.settings, self.routes, self.check_capacity = app, settings, routes, check_capacity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        policy = scope["route_policy"] = self.routes.find_policy(scope)
        if policy.access == "probe":
            await self.app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._check(policy, headers)
            if policy.queue is not None:
                self.check_capacity(policy.queue, identify_client(scope, self.settings.tokens))
                check_content_type(headers)
        except MetaxcError as error:
            await respond_to_error(error)(scope, receive, send)
            return
        if policy.needs_token and (connection := scope.get("state", {}).get("connection")) is not None:
            connection.admit()  # of `http_server.GuardedConnection`: now it is no stranger any more
        await self.app(scope, receive, send)

    def _check(self, policy: RoutePolicy, headers: Headers) -> None:
        if self.settings.tokens.required:
            if policy.needs_token:
                self._check_token(policy, headers.get("authorization", ""))
        elif not self._is_allowed_host(headers.get("host", "")):
            raise ForbiddenError(
                "The host name is not accepted",
                got=headers.get("host", "no Host header"),
                expected="localhost, 127.0.0.1, or one of the allowed hosts",
                fix="use one of these, or start the service with a token",
            )
        if policy.needs_token:
            check_origin(headers, self.settings.network)

    def _check_token(self, policy: RoutePolicy, header: str) -> None:
        tokens = self.settings.tokens
        if not has_token(header, tokens):
            raise UnauthorizedError(
                "The token is wrong" if read_bearer(header) else "The token is missing",
                expected="Authorization: Bearer TOKEN",
                fix="ask the operator of the service for a token",
            )
        if policy.access == "write" and not is_same_token(read_bearer(header), tokens.write):
            raise ForbiddenError(
                "This token may read but not write",
                expected="the write token",
                fix="ask the operator of the service for the write token",
            )

    def _is_allowed_host(self, header: str) -> bool:
        """Against DNS rebinding: a web page can make a browser call this machine by the page's own name."""
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        network = self.settings.network
        return is_loopback(name) or name in (network.host, *network.allowed_hosts)
