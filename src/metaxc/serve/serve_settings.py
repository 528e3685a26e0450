"""All limits of the service in one place, each with its reason.

Nobody outside this machine reaches the service unless a token says so: an address that is not loopback is refused
without one. Everything a client can make large is bounded, so that memory stays flat whatever is sent.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from metaxc.catalog.item_rules import MOST_TAGS, MOST_TEXT
from metaxc.errors import ConfigError

READ_TOKEN, WRITE_TOKEN = "METAXC_READ_TOKEN", "METAXC_WRITE_TOKEN"
LEAST_TOKEN = 16  # characters; a shorter one can be guessed over a network


class ServeSettings(BaseModel):
    """How the service is reached, and how much of anything it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="this machine alone; another address needs a token")
    port: int = Field(8765, ge=0, le=65535, description="0 takes any free one")
    names: tuple[str, ...] = Field(
        (), description="host names a client may call the service by without a token, beside this machine's"
    )
    read_token: SecretStr | None = Field(
        None, description="lets read; None with a write token: that one reads"
    )
    write_token: SecretStr | None = Field(None, description="lets read and write")
    most_body: int = Field(1 << 20, ge=1024, description="bytes; a full batch of items of usual length")
    most_batch: int = Field(256, ge=1, description="items or texts per request; encoding them takes seconds")
    most_text: int = Field(
        4000, ge=1, le=MOST_TEXT, description="characters; encoders read a few hundred tokens of a text"
    )
    most_k: int = Field(100, ge=1, description="hits per query; a full batch of these is some 5 MB of answer")
    most_page: int = Field(500, ge=1, description="items per page of a list")
    most_tags: int = Field(16, ge=1, le=MOST_TAGS, description="tags per item or filter; each is looked up")
    most_revealed: int = Field(
        50, ge=1, description="revealed queries or switched-off neighbours of a preview"
    )
    most_queue: int = Field(256, ge=1, description="requests waiting per lane; more would only wait longer")
    most_requests: int = Field(512, ge=1, description="requests at once, their bodies are in memory")
    batch: int = Field(64, ge=1, description="texts worked on in one call; encoders gain little from more")
    readers: int = Field(2, ge=1, description="threads for get, list, explain and preview")
    request_timeout: float = Field(
        30.0, gt=0, description="seconds to send a body, and to wait for one's turn"
    )
    shutdown_timeout: int = Field(20, ge=1, description="seconds that open requests are given at the end")
    recall_rate: float = Field(
        0.01, ge=0, le=1, description="of search batches, searched exactly too: costs 1 %"
    )

    @field_validator("read_token", "write_token", mode="before")
    @classmethod
    def _long_enough(cls, token: object) -> object:
        if isinstance(token, str) and (
            len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
        ):
            raise ConfigError(
                "A token is not fit to guard the service",
                got=f"{len(token)} characters",
                expected=f"{LEAST_TOKEN} or more visible ASCII characters",
                fix="make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        return token

    @model_validator(mode="after")
    def _guarded(self) -> ServeSettings:
        if not self.guarded and not is_loopback(self.host):
            raise ConfigError(
                "The service is not opened to other machines without a token",
                got=f"host {self.host}",
                expected="a loopback address, or a token",
                fix=f"set {WRITE_TOKEN} (and {READ_TOKEN}), or use 127.0.0.1",
            )
        if self.guarded and self.read_token == self.write_token:
            raise ConfigError(
                "The read token and the write token are the same",
                expected="two different tokens, so that who may read may not write",
                fix=f"give {READ_TOKEN} another value, or leave it out",
            )
        return self

    @property
    def guarded(self) -> bool:
        """Whether requests need a token."""
        return self.read_token is not None or self.write_token is not None

    @classmethod
    def of_environment(cls, **given: Any) -> ServeSettings:
        """These settings, with the tokens of METAXC_READ_TOKEN and METAXC_WRITE_TOKEN where none are given."""
        tokens = {"read_token": os.environ.get(READ_TOKEN), "write_token": os.environ.get(WRITE_TOKEN)}
        return cls(**{**{name: token for name, token in tokens.items() if token}, **given})


def is_loopback(host: str) -> bool:
    """Whether an address or name can only be reached from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
