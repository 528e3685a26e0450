"""Errors over HTTP: every exception type has one status, every error body has what, got, expected and fix.

Details of internal failures go to the server's log: a client sees neither a traceback nor a path of the machine. The
client turns a status back into the exception type (`ERROR_BY_STATUS`).
"""

from __future__ import annotations

import logging
import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from metaxc.catalog.catalog_errors import (
    OUTCOME_UNKNOWN,
    CatalogError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    StorageError,
)
from metaxc.errors import ConfigError, DataError, MetaxcError

log = logging.getLogger("metaxc.serve")
MAX_SHOWN = 200  # characters of a given value: enough to recognize it, short enough for a log line


@dataclass(frozen=True)
class ErrorResponse:
    """The body of every error."""

    what: str
    got: str | None = None
    expected: str | None = None
    fix: str | None = None


class UnauthorizedError(MetaxcError):
    """The request has no token, or an unknown one."""


class ForbiddenError(MetaxcError):
    """A read token on a write, a read-only catalog, or a host name or web page that the service does not accept."""


class TooLargeError(DataError):
    """The request body exceeds its limit."""


class MediaTypeError(DataError):
    """The request body is not announced as JSON."""


class RequestTimeoutError(MetaxcError):
    """The request body did not arrive in time."""


class _RetryLaterError(MetaxcError):
    """A refusal that may be an acceptance later; `retry_after` is in seconds."""

    def __init__(self, what: str, *, retry_after: float = 1.0, **answers: Any):
        super().__init__(what, **answers)
        self.retry_after = retry_after


class BusyError(_RetryLaterError):
    """The service has as many requests as it accepts at once."""


class NotReadyError(_RetryLaterError):
    """The service is opening, closing, or cannot answer a request in time."""


class ServiceError(MetaxcError):
    """The service failed; its log has the details."""


STATUS_BY_ERROR: tuple[tuple[type[MetaxcError], int], ...] = (  # the first type that matches counts
    (ForbiddenError, 403),
    (UnauthorizedError, 401),
    (NotFoundError, 404),
    (RequestTimeoutError, 408),
    (ConflictError, 409),
    (TooLargeError, 413),
    (MediaTypeError, 415),
    (DataError, 422),
    (ConfigError, 422),
    (BusyError, 429),
    (StorageError, 507),
    (NotReadyError, 503),
    (CatalogError, 503),
    (ServiceError, 500),
)
ERROR_BY_STATUS = {status: error for error, status in reversed(STATUS_BY_ERROR)}
ERROR_BY_TEXT = {OUTCOME_UNKNOWN: OutcomeUnknownError}
"""Errors that share their status with others, by what they say."""
STATUS_TITLES = {
    401: "The token is missing or wrong",
    403: "The token may only read, the catalog is read-only, or the host name or the calling web page is not accepted",
    404: "Not found",
    405: "This path does not support the method",
    408: "The request body did not arrive in time",
    409: "An item with this id and other content exists, or a switch to another model is under way",
    413: "The request body is too large",
    415: "The request body is not announced as JSON",
    422: "The request is invalid",
    429: "Too many requests; retry after Retry-After seconds",
    500: "Internal error",
    503: "The service is opening, closing or too busy to answer in time",
    507: "Disk full or I/O error, nothing was written; or the outcome of the write is unknown, as the body then says",
}
RETRY = {"Retry-After": "1"}
MAX_RETRY_AFTER = 60  # seconds: a prediction further ahead is a guess
STATUS_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: RETRY, 503: RETRY}
PUBLIC_SERVER_ERRORS = (
    NotReadyError,
    BusyError,
    OutcomeUnknownError,
)  # errors of the server whose details reveal nothing internal


def respond_to_error(error: Exception) -> JSONResponse:
    """The response to a failed request; internal details go to the log instead."""
    status = next((status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)), 500)
    if not isinstance(error, MetaxcError) or status == 500:
        log.error("Internal error", exc_info=error)
        return json_error(500, ErrorResponse(STATUS_TITLES[500], fix="see the service's log"))
    if status >= 500 and not isinstance(error, PUBLIC_SERVER_ERRORS):
        log.error("%s", error)
        fix = f"{STATUS_TITLES[status]}; see the service's log"
        return json_error(status, ErrorResponse(error.what, fix=fix))
    got, expected, fixed = (
        None if part is None else shorten(part) for part in (error.got, error.expected, error.fix)
    )
    response = json_error(status, ErrorResponse(shorten(error.what), got, expected, fixed))
    if isinstance(error, _RetryLaterError):
        response.headers["Retry-After"] = str(min(max(math.ceil(error.retry_after), 1), MAX_RETRY_AFTER))
    return response


def json_error(status: int, body: ErrorResponse) -> JSONResponse:
    """An error as JSON, with the headers of its status."""
    return JSONResponse(vars(body), status, STATUS_HEADERS.get(status))


def shorten(part: object) -> str:
    """A part of an error in at most `MAX_SHOWN` characters that can be encoded as UTF-8."""
    text = str(part).encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def describe_validation_errors(errors: Sequence[Any]) -> ErrorResponse:
    """The first validation error of a request, in the shape of every other error."""
    first = errors[0]
    # Of a body that may be of several kinds, the kind is part of the place: "(several)".
    field = ".".join(part for part in map(str, first["loc"]) if not part.startswith("(")) or "request"
    more = f" ({len(errors) - 1} more errors)" if len(errors) > 1 else ""
    return ErrorResponse(
        f"{shorten(field)} is invalid{more}",
        got=shorten(_show(first.get("input"))[: 2 * MAX_SHOWN]) if first["type"] != "missing" else None,
        expected=shorten(first["msg"]),
        fix="see /openapi.json",
    )


def _show(value: object) -> str:
    try:
        return repr(value)
    except (
        RecursionError
    ):  # JSON may be nested as deeply as Python can read, which is deeper than it can show
        return reprlib.repr(value)


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of the app an `ErrorResponse`."""

    @app.exception_handler(MetaxcError)
    async def _handle_metaxc_error(request: Request, error: MetaxcError) -> JSONResponse:
        return respond_to_error(error)

    @app.exception_handler(RequestValidationError)
    async def _handle_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return json_error(422, describe_validation_errors(error.errors()))

    @app.exception_handler(HTTPException)
    async def _handle_framework_error(request: Request, error: HTTPException) -> JSONResponse:
        status = 422 if error.status_code == 400 else error.status_code  # 400: the body is not JSON
        title = STATUS_TITLES.get(status, shorten(error.detail))
        response = json_error(status, ErrorResponse(title, got=shorten(request.url.path)))
        response.headers.update(error.headers or {})
        return response
