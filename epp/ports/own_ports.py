"""Ports of one command that are alike: refused by the names of their flags, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epp.errors import ConfigError
from epp.server.options import DEBUG_PORT, DebugOptions, ServeOptions, StandaloneOptions

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that take a port at all of a machine's addresses."""
LOOPBACK = "127.0.0.1"
"""Where the ports between the proxy and the picker are."""

Wanted = Mapping[str, tuple[str, int]]
"""By flag: an address and a port there; 0 is any."""


def of_serve(options: ServeOptions) -> ServeOptions:
    """``options``. Raises: ConfigError for two ports alike."""
    refuse_shared(
        {
            "--grpc-port": (options.host, options.grpc_port),
            "--grpc-health-port": (options.host, options.grpc_health_port),
            "--metrics-port": (options.host, options.metrics_port),
            **_of_debug(options.debug),
        }
    )
    return options


def of_standalone(options: StandaloneOptions) -> StandaloneOptions:
    """``options``, with a debug port that leaves its number to the proxy: that opens its ports after the picker.

    Raises: ConfigError for two ports alike.
    """
    if options.debug.port is None and DEBUG_PORT in (options.port, options.admin_port):
        options = replace(options, debug=replace(options.debug, port=0))
    refuse_shared(
        {
            "--port": (options.host, options.port),
            "--admin-port": (LOOPBACK, options.admin_port),
            "--metrics-port": (options.host, options.metrics_port),
            "--grpc-port": (LOOPBACK, options.grpc_port),
            **_of_debug(options.debug),
        }
    )
    return options


def refuse_shared(wanted: Wanted) -> None:
    """Raises: ConfigError when two flags want one port at addresses that meet."""
    taken: dict[int, list[tuple[str, str]]] = {}
    for flag, (named, port) in wanted.items():
        host = LOOPBACK if named == "localhost" else named
        for other, there in taken.get(port, ()) if port else ():
            if host == there or host in EVERYWHERE or there in EVERYWHERE:
                raise ConfigError(f"{other} and {flag} are both {port}; give each a port of its own")
        taken.setdefault(port, []).append((flag, host))


def _of_debug(debug: DebugOptions) -> Wanted:
    """Only one that was asked for: the default gives way."""
    return {"--debug-port": (debug.host, debug.port)} if debug.enabled and debug.port is not None else {}
