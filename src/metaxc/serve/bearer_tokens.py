"""Reads the token of a request, `Authorization: Bearer TOKEN`, and compares it with those of the service."""

from __future__ import annotations

import hmac

from pydantic import SecretStr

from metaxc.serve.serve_settings import TokenSettings


def has_token(header: str, tokens: TokenSettings) -> bool:
    """Whether an Authorization header has one of the service's tokens."""
    given = read_bearer(header)
    return is_same_token(given, tokens.write) or is_same_token(given, tokens.read)


def read_bearer(header: str) -> str:
    """The token in an Authorization header; empty if there is none."""
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def is_same_token(given: str, token: SecretStr | None) -> bool:
    """Compare tokens in a time that does not depend on how many characters match."""
    if token is None:
        return False
    return hmac.compare_digest(given.encode("utf-8"), token.get_secret_value().encode("utf-8"))
