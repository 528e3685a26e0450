"""Errors over HTTP: each kind has its status, each says what, got, expected and fix.

What went wrong inside is for the server's log: a client sees neither a traceback nor a path of the machine. The
client room turns a status back into the kind it came from.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from metaxc.catalog.catalog_errors import CatalogError, ConflictError, NotFoundError, StorageError
from metaxc.errors import ConfigError, DataError, MetaxcError

log = logging.getLogger("metaxc.serve")
MOST_SHOWN = 200  # characters of what was given


@dataclass(frozen=True)
class Problem:
    """What a refused request is answered with."""

    what: str
    got: str | None = None
    expected: str | None = None
    fix: str | None = None


class TokenError(MetaxcError):
    """No token, or not one that opens this."""


class ForbiddenError(TokenError):
    """A token that may read but not write, a catalog that is only read, or a host name that is not ours."""


class TooLargeError(DataError):
    """A body beyond its bound."""


class SlowError(MetaxcError):
    """A body that does not arrive."""


class BusyError(MetaxcError):
    """More requests than the service takes at once."""


class NotReadyError(MetaxcError):
    """The service is opening, closing, or did not get to a request in its time."""


class ServiceError(MetaxcError):
    """The service failed; its log says why."""


STATUS: tuple[tuple[type[MetaxcError], int], ...] = (  # the first kind that fits
    (ForbiddenError, 403),
    (TokenError, 401),
    (NotFoundError, 404),
    (SlowError, 408),
    (ConflictError, 409),
    (TooLargeError, 413),
    (DataError, 422),
    (ConfigError, 422),
    (BusyError, 429),
    (StorageError, 507),
    (NotReadyError, 503),
    (CatalogError, 503),
    (ServiceError, 500),
)
MEANS = {
    401: "No token, or a wrong one",
    403: "A read token on a write, a read-only catalog, or a foreign host name",
    404: "Not there",
    405: "A method that this path does not have",
    408: "The body did not arrive in time",
    409: "An item of that id with other content is there",
    413: "The body is too large",
    422: "The request is not as it should be",
    429: "Too many requests wait; come back after Retry-After seconds",
    500: "Internal error",
    503: "Opening, closing, or too busy to answer in time",
    507: "The disk is full; reads go on",
}
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
OWN_STORY = (NotReadyError, BusyError)  # of the server's errors, those that say nothing of its inside


def status_of(error: Exception) -> int:
    """The status an error is answered with."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def answer_to(error: Exception) -> JSONResponse:
    """The answer that a failed request gets; what it must not say goes to the log."""
    status = status_of(error)
    if not isinstance(error, MetaxcError) or status == 500:
        log.error("Internal error", exc_info=error)
        return answer(500, Problem(MEANS[500], fix="the service's log says more"))
    if status >= 500 and not isinstance(error, OWN_STORY):
        log.error("%s", error)
        return answer(status, Problem(error.what, fix=f"{MEANS[status]}; the service's log says more"))
    got, expected, fix = (
        None if part is None else shown(part) for part in (error.got, error.expected, error.fix)
    )
    return answer(status, Problem(shown(error.what), got, expected, fix))


def answer(status: int, problem: Problem) -> JSONResponse:
    """A problem as JSON."""
    return JSONResponse(vars(problem), status, HEADERS.get(status))


def shown(part: object) -> str:
    """A part of an error, short and in characters that can be sent."""
    text = str(part).encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def of_validation(errors: Sequence[Any]) -> Problem:
    """The first thing wrong with a request, in the shape of every other error."""
    first = errors[0]
    place = ".".join(map(str, first["loc"])) or "request"
    given = first.get("input")
    return Problem(
        f"{shown(place)} is not right" + (f", and {len(errors) - 1} more" if len(errors) > 1 else ""),
        got=shown(repr(given)[: 2 * MOST_SHOWN]) if first["type"] != "missing" else None,
        expected=shown(first["msg"]),
        fix="see /openapi.json",
    )


def answer_errors(app: FastAPI) -> None:
    """Let every error leave the app in one shape."""

    @app.exception_handler(MetaxcError)
    async def _known(request: Request, error: MetaxcError) -> JSONResponse:
        return answer_to(error)

    @app.exception_handler(RequestValidationError)
    async def _not_valid(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(422, of_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def _by_the_framework(request: Request, error: HTTPException) -> JSONResponse:
        status = 422 if error.status_code == 400 else error.status_code  # 400: a body that is not JSON
        made = answer(status, Problem(MEANS.get(status, shown(error.detail)), got=shown(request.url.path)))
        made.headers.update(error.headers or {})
        return made
