"""Which connections may be open, and which one has to go when there is no room for the next.

A stranger is a connection on which no request has passed the access checks of a route that needs them. When the table
is full, a new connection replaces the oldest stranger of the address that has most of them. So an address that floods
the service replaces its own connections; and a client that sends its token with its first request, within the time in
which strangers could fill the whole table, always gets in. A connection that was admitted is closed for a new one only
when no stranger is left, and never while its request is being worked on.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_network
from typing import Protocol

RESERVED_FILES = (
    256  # for the catalog, its index, the model and the log; a service with ten readers opens about 60
)


class Connection(Protocol):
    """What the table needs to know about a connection."""

    network: str  # of `network_of`

    @property
    def at_work(self) -> bool:
        """Whether the service works on a request of it, which has arrived completely."""

    def abort(self) -> None:
        """Close it at once, unsent data included."""


class ConnectionTable:
    """The open connections: strangers by network, and admitted ones, each in the order in which they came.

    Its memory is that of `capacity` entries, whoever connects.

    Args:
        capacity: Connections at once.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._strangers: dict[str, dict[Connection, None]] = {}
        self._admitted: dict[Connection, None] = {}
        self._size = 0

    def __len__(self) -> int:
        """Open connections."""
        return self._size

    def __iter__(self) -> Iterator[Connection]:
        """All of them; the table may change meanwhile."""
        strangers = [one for group in self._strangers.values() for one in group]
        return iter([*strangers, *self._admitted])

    def add(self, connection: Connection) -> None:
        """Add a new connection, a stranger."""
        self._strangers.setdefault(connection.network, {})[connection] = None
        self._size += 1

    def admit(self, connection: Connection) -> None:
        """A request of the connection has passed the access checks."""
        if self._remove_stranger(connection):
            self._admitted[connection] = None

    def discard(self, connection: Connection) -> None:
        """Remove a connection, if it is there."""
        if self._remove_stranger(connection):
            self._size -= 1
        elif connection in self._admitted:
            del self._admitted[connection]
            self._size -= 1

    def make_room(self) -> bool:
        """Make room for one more connection; False when all that are open are being worked on."""
        if self._size < self.capacity:
            return True
        victim = self._choose_victim()
        if victim is None:
            return False
        self.discard(victim)
        victim.abort()
        return True

    def _choose_victim(self) -> Connection | None:
        if self._strangers:
            largest = max(self._strangers.values(), key=len)
            return next(iter(largest))
        return next((one for one in self._admitted if not one.at_work), None)

    def _remove_stranger(self, connection: Connection) -> bool:
        group = self._strangers.get(connection.network, {})
        if connection not in group:
            return False
        del group[connection]
        if not group:
            del self._strangers[connection.network]
        return True


def connection_capacity(most: int) -> int:
    """How many connections may be open: at most `most`, and so few that files can still be opened beside them."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    return min(most, files - min(RESERVED_FILES, files // 2))


def network_of(host: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which belongs to one."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
