"""Refuses equal ports of one command, by the names of their flags, before a port is opened."""

from __future__ import annotations

from collections.abc import Mapping

from epp.errors import ConfigError

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that bind a port at every address of the machine."""
LOOPBACK = "127.0.0.1"
"""The host of the ports between the proxy and the picker."""

Wanted = Mapping[str, tuple[str, int]]
"""Addresses and ports by flag; port 0 is any."""


def refuse_shared(wanted: Wanted) -> None:
    """Check the ports. Raises: ConfigError if two flags want one port at addresses that overlap."""
    taken: dict[int, list[tuple[str, str]]] = {}
    for flag, (named, port) in wanted.items():
        host = LOOPBACK if named == "localhost" else named
        for other, there in taken.get(port, ()) if port else ():
            if host == there or host in EVERYWHERE or there in EVERYWHERE:
                raise ConfigError(f"{other} and {flag} are both {port}; give each a port of its own")
        taken.setdefault(port, []).append((flag, host))
