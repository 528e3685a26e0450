"""The settings of the service in six groups; each default has its reason.

Without a token the service answers this machine only: any other address than loopback is rejected. Everything that a
client can make large has a limit, so that memory stays flat whatever is sent.
"""

from __future__ import annotations

import os
from ipaddress import ip_address

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from metaxc.catalog.generation_checks import GenerationChecks
from metaxc.data.input_rules import MOST_TAGS, MOST_TEXT
from metaxc.errors import ConfigError

READ_TOKEN, WRITE_TOKEN = "METAXC_READ_TOKEN", "METAXC_WRITE_TOKEN"
MIN_TOKEN_LENGTH = 16  # characters; a shorter token can be guessed over a network


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NetworkSettings(_Settings):
    """Where the service listens."""

    host: str = Field(
        "127.0.0.1",
        description="Address to listen on; loopback keeps other machines out, any other address needs a token in "
        f"${WRITE_TOKEN} or ${READ_TOKEN}.",
    )
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 selects a free port.")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Host names accepted beside loopback: in the Host header of a service without tokens, and in the "
        "Origin header where a proxy replaces the Host header.",
    )
    shutdown_timeout: int = Field(20, ge=1, description="Seconds that open requests get at shutdown.")


class TokenSettings(_Settings):
    """Who may use the service; without any token everybody on this machine."""

    read: SecretStr | None = Field(None, description="Permits reading; so does the write token.")
    write: SecretStr | None = Field(None, description="Permits reading and writing.")

    @field_validator("read", "write", mode="before")
    @classmethod
    def _check_token(cls, token: object) -> object:
        if isinstance(token, str) and (
            len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token
        ):
            raise ConfigError(
                "The token is too weak or contains invalid characters",
                got=f"{len(token)} characters",
                expected=f"{MIN_TOKEN_LENGTH} or more visible ASCII characters",
                fix="generate one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        return token

    @model_validator(mode="after")
    def _check_different(self) -> TokenSettings:
        if self.required and self.read == self.write:
            raise ConfigError(
                "The read token and the write token are the same",
                expected="two different tokens, so that the read token cannot write",
                fix=f"give {READ_TOKEN} another value, or remove it",
            )
        return self

    @property
    def required(self) -> bool:
        """Whether requests need a token."""
        return self.read is not None or self.write is not None


class ConnectionSettings(_Settings):
    """How many connections may be open, and how long each may wait for its client.

    A request that is in a queue or being worked on has no timeout here; `RequestLimits` has that one.
    """

    max_connections: int = Field(
        1000,
        ge=8,
        description="Open connections; fewer where the process may open few files. When all are taken, a new one "
        "replaces the oldest that has not shown a token.",
    )
    header_timeout: float = Field(
        5.0,
        gt=0,
        description="Seconds from the connection, or the first byte of a request, to its whole header.",
    )
    idle_timeout: float = Field(
        5.0, gt=0, description="Seconds without a request; a new connection is cheap."
    )
    body_timeout: float = Field(30.0, gt=0, description="Seconds for a body to arrive; 1 MB at 35 KB/s.")
    write_timeout: float = Field(
        10.0, gt=0, description="Seconds in which a client has to read 64 KB of a response, or all of it."
    )


class RequestLimits(_Settings):
    """How much one request, and all open requests together, may ask for."""

    max_body_bytes: int = Field(1 << 20, ge=1024, description="Fits a full batch of items of usual length.")
    max_batch: int = Field(256, ge=1, description="Items or texts per request; encoding them takes seconds.")
    max_text_length: int = Field(4000, ge=1, le=MOST_TEXT, description="Characters; more than encoders read.")
    max_k: int = Field(100, ge=1, description="Hits per query; a full batch of these is a 5 MB response.")
    max_offset: int = Field(
        1000, ge=0, description="Hits before a page; deeper ones cost as much as all before."
    )
    max_page_size: int = Field(500, ge=1, description="Items per page of a list; keeps responses small.")
    max_tags: int = Field(16, ge=1, le=MOST_TAGS, description="Tags per item or filter; each costs a lookup.")
    max_preview_edits: int = Field(
        50, ge=1, description="Queries or neighbours in a preview; each costs time."
    )
    max_requests: int = Field(
        512,
        ge=1,
        description="Requests in the queues or being worked on; one whose body is arriving is not counted.",
    )
    max_total_body_bytes: int = Field(
        64 << 20, ge=1024, description="Bodies in memory, of all requests together; 64 of the largest."
    )
    timeout: float = Field(30.0, gt=0, description="Seconds in a queue; the client waits 60.")


class QueueSettings(_Settings):
    """How waiting requests are queued and batched."""

    max_waiting: int = Field(256, ge=1, description="Requests per queue; more would only wait longer.")
    max_wait: float = Field(
        1.0,
        gt=0,
        description="Seconds within which an accepted request is predicted to begin; others are refused at once.",
    )
    slice_tokens: int = Field(
        256,
        ge=1,
        description="Tokens of a request that are encoded before another request has its turn, and tokens per batch: "
        "the longest text that usual encoders read; they gain nothing from more.",
    )
    slice_texts: int = Field(64, ge=1, description="Texts per slice; hits of more would take long to load.")
    read_threads: int = Field(2, ge=1, description="Threads for reads; one slow preview blocks no others.")
    recall_sample_rate: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of searches repeated exactly to measure the recall; 1 % is cheap.",
    )


class SwitchSettings(_Settings):
    """When a new model is refused (`POST /v1/model`). A change that reaches its threshold is accepted."""

    sample: int = Field(200, ge=1, description="Queries, and recent clicks, on which it is compared.")
    min_recall: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Recall at 10 of its index against exact search; usual is 0.99 and more.",
    )
    max_changed: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of the first ten answers of a query that may be others. A model of other data changes "
        "nearly all of them.",
    )
    max_novel_loss: float = Field(
        0.05,
        ge=0,
        le=1,
        description="By how much R@10 of recent clicks on items that no model was trained on may be lower; with 200 "
        "clicks its standard error is at most 0.035.",
    )
    min_novel_clicks: int = Field(
        50, ge=1, description="Number of such clicks from which that figure counts; fewer say little."
    )

    def thresholds(self) -> dict[str, float]:
        """All of them, by name."""
        return {name: float(value) for name, value in self.model_dump().items()}

    def find_problems(self, checks: GenerationChecks) -> list[str]:
        """Why a new generation is refused; empty where it is accepted."""
        problems = []
        if checks.recall < self.min_recall:
            problems.append(f"recall {checks.recall:.3f}, at least {self.min_recall:g} is required")
        if checks.changed > self.max_changed:
            problems.append(f"{checks.changed:.3f} of the answers change, at most {self.max_changed:g} may")
        before, after = checks.novel_recall_before, checks.novel_recall_after
        if before is not None and after is not None and checks.novel_clicks >= self.min_novel_clicks:
            loss = before - after
            if loss > self.max_novel_loss:
                problems.append(
                    f"novel R@10 falls from {before:.3f} to {after:.3f}, by at most {self.max_novel_loss:g} it may"
                )
        return problems


class ServeSettings(_Settings):
    """All settings of the service.

    Example:
        ServeSettings(network={"port": 0}, limits={"max_k": 50})
    """

    network: NetworkSettings = NetworkSettings()
    tokens: TokenSettings = TokenSettings()
    connections: ConnectionSettings = ConnectionSettings()
    limits: RequestLimits = RequestLimits()
    queues: QueueSettings = QueueSettings()
    switch: SwitchSettings = SwitchSettings()

    @model_validator(mode="after")
    def _check_exposure(self) -> ServeSettings:
        if not self.tokens.required and not is_loopback(self.network.host):
            raise ConfigError(
                "The service does not listen to other machines without a token",
                got=f"host {self.network.host}",
                expected="a loopback address, or a token",
                fix=f"set {WRITE_TOKEN} (and {READ_TOKEN}), or use 127.0.0.1",
            )
        return self


def read_tokens() -> TokenSettings:
    """The tokens in the environment variables METAXC_READ_TOKEN and METAXC_WRITE_TOKEN; an empty one is none."""
    return TokenSettings.model_validate(
        {"read": os.environ.get(READ_TOKEN) or None, "write": os.environ.get(WRITE_TOKEN) or None}
    )


def is_loopback(host: str) -> bool:
    """Whether an address or host name can only be reached from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
