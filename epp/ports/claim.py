"""Ports that cannot be had, in a sentence that names the flag.

Asked before Envoy is: it would share a port, or say so in its own words.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable

from epp.errors import ConfigError


def claim(host: str, port: int, flag: str) -> int:
    """``port``, or a free one for 0, after trying to listen there.

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
    """What to tell the user who chose ``port`` by ``flag``."""
    return ConfigError(f"cannot listen on {host}:{port}: {_remedy(error, port, flag)}")


def _remedy(error: OSError, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; stop what listens there or pass {flag} with another port"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; pass {flag} with a port above 1023"
    return f"{error.strerror}; check the address, or pass {flag} with another port"


async def listening(start: Callable[[str, int], Awaitable[int]], host: str, port: int, flag: str) -> int:
    """The port that was got. Raises: ConfigError naming ``flag``."""
    try:
        return await start(host, port)
    except OSError as error:
        raise refused(error, host, port, flag) from error
