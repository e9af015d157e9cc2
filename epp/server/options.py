"""The options of ``tierwise serve`` as typed values, which its flags set. No other module reads the arguments.

Every command has its options in a file of this name and beside it ``flags.py``, whose table names the option that each
flag sets. Units: ``_s`` seconds, ``_bytes`` bytes. Addresses are ``host:port`` with IPv6 in brackets; a host may be a
name, which is resolved where the pool is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from epp.config.options import ConfigOptions
from epp.explain.options import DebugOptions
from epp.extproc.options import ExchangeSettings
from epp.ports.options import TlsOptions
from epp.runtime.options import LogOptions
from epp.scrape.parameters import MetricsSourceOptions
from epp.server.settings import Settings

MAX_REQUEST_BYTES = 32 << 20
"""A request body beyond this is answered with 413."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``tierwise serve``: the picker alone, beside a proxy that the operator runs."""

    config: ConfigOptions = ConfigOptions()
    picker: Settings = Settings(
        host="0.0.0.0",
        grpc_port=9002,
        health_port=9003,
        metrics_port=9090,
        tls=TlsOptions(),
        debug=DebugOptions(),
        exchange=ExchangeSettings(max_request_bytes=MAX_REQUEST_BYTES),
    )
    metrics_source: MetricsSourceOptions = MetricsSourceOptions()
    drain_timeout_s: float = 30.0
    check: bool = False
    """Whether the flags and the configuration are checked only, and nothing is served."""
    proxy_admin_port: int = 0
    """On loopback, of an Envoy in the same pod, which has no other picker; 0 without one."""

    log: LogOptions = LogOptions()
    notices: tuple[str, ...] = ()
    """Sentences for the start log about flags that are deprecated, or that change nothing."""
    remarks: tuple[str, ...] = ()
    """Sentences that need no action, about defaults of the Go picker that are off here."""
