"""Counts failed connections by kind, and logs them with a remedy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from enum import Enum

from epp.metrics.gauges import Reading
from epp.ports.door import MAX_HANDSHAKES, Failed, Failure, Report

log = logging.getLogger(__name__)

ANOTHER_EVERY_S = 60.0
"""The least time between two lines about one kind of failure at one port. A guess: an operator who repairs a proxy's
configuration looks about once a minute.
"""

_PLAINTEXT = (Failure.TLS_TO_PLAINTEXT, Failure.HTTP1)


class Port(Enum):
    """The ports that are watched; the value is the label on the metrics page."""

    EXT_PROC = "ext-proc"
    HEALTH = "health"
    METRICS = "metrics"


_PLAINTEXT_BECAUSE = {
    Port.EXT_PROC: (
        "--secure-serving=false",
        "take the transport_socket out of the proxy's cluster, or that flag away",
    ),
    Port.HEALTH: ("always", "ask it without TLS"),
    Port.METRICS: ("no --metrics-cert-dir", "ask it by http://, or give it a certificate"),
}
_ENCRYPTED = {
    Port.EXT_PROC: "give the proxy's cluster a transport_socket with UpstreamTlsContext, or serve with "
    "--secure-serving=false",
    Port.METRICS: "ask it by https://, or leave out --metrics-cert-dir",
}


class FailedConnections:
    """The connections that failed since the start. Owner: the event loop.

    Invariant: at most one line per kind and port every ``ANOTHER_EVERY_S``, whatever clients do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[tuple[Port, Failure], int] = {}
        self._logged: dict[tuple[Port, Failure], tuple[float, int]] = {}

    def at(self, port: Port, *, encrypted: bool) -> Report:
        """Return the function that reports the failures at ``port``."""
        for failure in Failure:
            if (failure in _PLAINTEXT) != encrypted and (port is not Port.METRICS or failure not in _GRPC_ONLY):
                self._counts[port, failure] = 0

        def report(failed: Failed) -> None:
            self._note(port, failed)

        return report

    def readings(self) -> Iterator[Reading]:
        """Return the readings for the metrics page."""
        counts = [((port.value, failure.value), count) for (port, failure), count in self._counts.items()]
        text = "Connections that failed before they were any, by port and kind."
        yield Reading("tierwise_failed_connections", text, ("port", "kind"), counts, counter=True)

    def _note(self, port: Port, failed: Failed) -> None:
        key = port, failed.failure
        count = self._counts[key] = self._counts.get(key, 0) + 1
        now = self._clock()
        logged_at, earlier = self._logged.get(key, (now - ANOTHER_EVERY_S, 0))
        if now - logged_at < ANOTHER_EVERY_S:
            return
        self._logged[key] = now, count
        more = (
            f" ({left_out} more like this since the last line)" if earlier and (left_out := count - earlier - 1) else ""
        )
        log.warning("%s%s", sentence(port, failed), more)


_GRPC_ONLY = (Failure.HTTP1, Failure.ALPN)


def sentence(port: Port, failed: Failed) -> str:
    """Return a sentence with the failure and its remedy."""
    who, to = failed.host, f"port {failed.port}"
    openssl = f" (OpenSSL: {failed.reason})" if failed.reason else ""
    match failed.failure:
        case Failure.TLS_TO_PLAINTEXT:
            why, what = _PLAINTEXT_BECAUSE[port]
            return f"{who} speaks TLS to {to}, which is plaintext ({why}): {what}"
        case Failure.HTTP1:
            return f"{who} speaks HTTP/1 to {to}, which is gRPC: give the proxy's cluster http2_protocol_options"
        case Failure.PLAINTEXT_TO_TLS:
            return f"{who} does not speak TLS to {to}, which is encrypted{openssl}: {_ENCRYPTED[port]}"
        case Failure.VERSION:
            return (
                f"{who} offers {to} no TLS version that is allowed{openssl}: let it speak a newer one (in Envoy "
                "tls_params: {tls_maximum_protocol_version: TLSv1_3}), or lower --tls-min-version"
            )
        case Failure.CIPHER:
            return f"{who} offers {to} no cipher suite that is allowed{openssl}: look at --tls-cipher-suites"
        case Failure.CLIENT_CERTIFICATE:
            return f"{who} shows {to} no certificate of --metrics-client-ca-file{openssl}: give it one"
        case Failure.OUR_CERTIFICATE:
            flag = "--metrics-cert-dir" if port is Port.METRICS else "--cert-path"
            return (
                f"{who} refuses the certificate that {to} shows{openssl}: give it the authority and the name of "
                f"{flag}'s certificate"
            )
        case Failure.ALPN:
            return f"{who} does not ask {to} for HTTP/2 by ALPN: in Envoy common_tls_context: {{alpn_protocols: [h2]}}"
        case Failure.HANDSHAKES:
            return (
                f"{who} begins a TLS handshake at {to} while {MAX_HANDSHAKES} are under way, which are the most: let "
                "only the proxies reach it"
            )
        case Failure.HANDSHAKE:
            return f"{who} and {to} do not agree on TLS{openssl}"
