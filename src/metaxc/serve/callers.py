"""Who sends a request, by which clients take turns, and until when an answer is of use to them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Hashable

from starlette.datastructures import Headers
from starlette.types import Scope

from metaxc.errors import DataError
from metaxc.serve.bearer_tokens import read_bearer
from metaxc.serve.request_queue import Caller
from metaxc.serve.serve_settings import TokenSettings

# RFC 7240 defines `Prefer: wait=SECONDS`, with whole seconds; fractions are accepted too.
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([^\s,;\"]*)", re.IGNORECASE)
_SECONDS = re.compile(r"\d{1,6}(\.\d{1,6})?")


def identify_client(scope: Scope, tokens: TokenSettings) -> Hashable:
    """A client is a token at an address: two services that share a token take turns, and so do two tokens behind one
    proxy. What a client can invent is left out, the port and a token that the service has not asked for, so that nobody
    gets more turns by it."""
    token = ""
    if tokens.required:  # and thus a valid one: others do not get so far
        token = read_bearer(Headers(scope=scope).get("authorization", ""))
    return token, (scope.get("client") or ("",))[0]


def identify_caller(scope: Scope, tokens: TokenSettings) -> Caller:
    """The client of a request, and the deadline that it sets with `Prefer: wait=SECONDS`."""
    header = ",".join(Headers(scope=scope).getlist("prefer"))
    deadline = math.inf
    if found := _WAIT.search(header):
        if not _SECONDS.fullmatch(found[1]):
            raise DataError(
                "The header Prefer is invalid",
                got=repr(header),
                expected="wait=SECONDS, the seconds for which the client waits for the answer",
                fix="send a number such as wait=2 or wait=0.5, or leave the header out",
            )
        deadline = time.perf_counter() + float(found[1])
    return Caller(identify_client(scope, tokens), deadline)
