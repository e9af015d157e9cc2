"""Checks that ports can be bound, and names the flags of those that cannot.

This is done before Envoy starts, which would share such a port, or fail in its own words.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, Sequence

from epp.errors import ConfigError


def claim_all(wanted: Sequence[tuple[str, int, str]]) -> list[int]:
    """Return the port of each ``(host, port, flag)``, or a free one for 0, after trying to listen there.

    Raises: ConfigError that names all the ports that are refused, and their flags.
    """
    ports: list[int] = []
    refusals: list[tuple[int, str, ConfigError]] = []
    for host, port, flag in wanted:
        try:
            ports.append(claim(host, port, flag))
        except ConfigError as error:
            refusals.append((port, flag, error))
    if len(refusals) == 1:
        raise refusals[0][2]
    if refusals and all(_is_taken(error) for *_, error in refusals):
        named = _listed([f"{port} ({flag})" for port, flag, _ in refusals])
        raise ConfigError(f"ports {named} are in use; stop what listens there or pass these flags with other ports")
    if refusals:
        raise ConfigError("; ".join(str(error) for *_, error in refusals))
    return ports


def claim(host: str, port: int, flag: str) -> int:
    """Return ``port``, or a free one for 0, after trying to listen there.

    Raises: ConfigError that names the port and ``flag``, the option that chooses another.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise refused(error, host, port, flag) from error
        return int(probe.getsockname()[1])


def refused(error: OSError, host: str, port: int, flag: str) -> ConfigError:
    """Return the refusal for the user who chose ``port`` by ``flag``."""
    return ConfigError(f"cannot listen on {host}:{port}: {_remedy(error, port, flag)}")


def _is_taken(refusal: ConfigError) -> bool:
    cause = refusal.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _remedy(error: OSError, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; stop what listens there or pass {flag} with another port"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; pass {flag} with a port above 1023"
    return f"{error.strerror}; check the address, or pass {flag} with another port"


async def listening(start: Callable[[str, int], Awaitable[int]], host: str, port: int, flag: str) -> int:
    """Call ``start`` and return the port that it listens on. Raises: ConfigError naming ``flag``."""
    try:
        return await start(host, port)
    except OSError as error:
        raise refused(error, host, port, flag) from error
