"""Opens the transport that the flag selects."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from epp.ports.certificates import Certificate
from epp.ports.door import Report, unreported
from epp.ports.options import TlsOptions
from epp.ports.tls import refuse_for_grpcio, server_context
from epp.server.settings import Transport
from epp.wire.http2.counters import Statistics
from epp.wire.http2.limits import Limits
from epp.wire.server import WireServer
from epp.wire.service import Methods


class Server(Protocol):
    """A server of gRPC methods."""

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which 0 leaves to the system. Raises: OSError."""

    async def drain(self, timeout_s: float) -> None:
        """Take no new calls and let the open ones end; what is open after ``timeout_s`` is cancelled."""

    async def stop(self) -> None:
        """Close every connection at once. Stopping twice is no error."""

    def statistics(self) -> Statistics:
        """Return a snapshot of its counters."""


class Tls(NamedTuple):
    """How a port is encrypted, and its certificate."""

    options: TlsOptions
    certificate: Certificate


def open_server(
    transport: Transport, methods: Methods, limits: Limits, tls: Tls | None, report: Report = unreported
) -> Server:
    """Return a server of ``methods`` that has not been started; grpcio is imported only if it is selected.

    ``report`` is called for failed connections, which grpcio does not report.

    Raises: ConfigError for certificates or flags that cannot be used.
    """
    if transport is Transport.WIRE:
        context = server_context(*tls) if tls is not None else None
        return WireServer(methods, limits=limits, tls=context, report=report)
    from epp.wire.aio import GrpcioServer

    if tls is None:
        return GrpcioServer(methods, limits=limits)
    refuse_for_grpcio(tls.options)
    certificate = tls.certificate
    return GrpcioServer(methods, limits=limits, tls=lambda: certificate.pair)
