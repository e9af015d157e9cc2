"""Turns the names of hosts into addresses: a proxy's endpoint is an address, and so is a destination."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from epp.errors import ConfigError


async def resolve(endpoints: Sequence[str]) -> list[str]:
    """Return each ``host:port`` with its host as an IP address (IPv6 in brackets), in order; IPv4 is preferred.

    Of a name with several addresses one is used. Names are resolved only once: an endpoint that moves needs discovery.

    Raises: ConfigError naming the first endpoint whose host is unknown.
    """
    return list(await asyncio.gather(*(_resolve_one(endpoint) for endpoint in endpoints)))


async def _resolve_one(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    try:
        return _joined(ipaddress.ip_address(host.strip("[]")), port)
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"endpoint {endpoint!r}: {error}; pass an address, or a name that this machine knows"
        ) from error
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    return _joined(min(addresses, key=lambda address: address.version), port)


def _joined(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: str) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
