"""Ports of one command that are alike: refused by the names of their flags, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping

from epp.errors import ConfigError

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that take a port at all of a machine's addresses."""
LOOPBACK = "127.0.0.1"
"""Where the ports between the proxy and the picker are."""

Wanted = Mapping[str, tuple[str, int]]
"""By flag: an address and a port there; 0 is any."""


def refuse_shared(wanted: Wanted) -> None:
    """Raises: ConfigError when two flags want one port at addresses that meet."""
    taken: dict[int, list[tuple[str, str]]] = {}
    for flag, (named, port) in wanted.items():
        host = LOOPBACK if named == "localhost" else named
        for other, there in taken.get(port, ()) if port else ():
            if host == there or host in EVERYWHERE or there in EVERYWHERE:
                raise ConfigError(f"{other} and {flag} are both {port}; give each a port of its own")
        taken.setdefault(port, []).append((flag, host))
