"""Against other web pages in a user's browser: they may not call the service with the user's access.

A browser lets any page send requests to any address, this machine included; it only withholds the responses. So what
changes the catalog or costs work is refused when the browser says that another page asked, and a body has to be
announced as JSON, which a browser does not send for another page without asking the service first. Both are checked
here, and not left to the web framework, whose rules differ between versions.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from metaxc.serve.http_errors import ForbiddenError, MediaTypeError
from metaxc.serve.serve_settings import NetworkSettings

OWN_SITES = (
    "same-origin",
    "none",
)  # of Sec-Fetch-Site; "none" is the address bar. Other ports are "same-site"
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_origin(headers: Headers, network: NetworkSettings) -> None:
    """Raise `ForbiddenError` for a request of another web page. Programs that are no browser send neither header."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        if _is_own(origin, headers.get("host", ""), network):
            return
        got = f"Origin: {origin}"
    elif site is None or site.strip().lower() in OWN_SITES:
        return
    else:
        got = f"Sec-Fetch-Site: {site}"
    raise ForbiddenError(
        "Another web page may not use this service",
        got=got,
        expected="a request of the service's own page, or of a program",
        fix="open the service's page, or add the page's host name to allowed_hosts",
    )


def check_content_type(headers: Headers) -> None:
    """Raise `MediaTypeError` for a body that is not announced as JSON."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "")
    if has_body and kind.partition(";")[0].strip().lower() != "application/json":
        raise MediaTypeError(
            "The request body has the wrong content type",
            got=kind or "no Content-Type header",
            expected="Content-Type: application/json",
            fix="send JSON and say so; with curl: --json",
        )


def _is_own(origin: str, host: str, network: NetworkSettings) -> bool:
    """Whether an origin is the service itself, as the Host header names it, or one of the allowed hosts."""
    try:
        parts = urlsplit(origin.lower())
        name, place = parts.hostname, parts.netloc
    except ValueError:
        return False
    default = DEFAULT_PORTS.get(parts.scheme)
    if default is None or not name:  # "null": a page without an origin
        return False
    return place.removesuffix(default) == host.lower().removesuffix(default) or name in network.allowed_hosts
