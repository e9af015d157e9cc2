"""Learns from the proxy's access log how requests ended, when their responses do not pass through the picker.

The log is best effort: the proxy drops entries while the connection is down, repeats none, and sends them some tens of
milliseconds late. Therefore nothing here raises over an entry, and a pick whose entry is lost ends with its lease.

Source: Envoy's ``envoy.service.accesslog.v3``; behavior as observed on Envoy 1.40.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Protocol

from google.protobuf.message import DecodeError
from typing_extensions import override

from epp.decision import GOOD_STATUSES, MODEL_SERVER_ERROR, Cause, Outcome
from epp.metrics.gauges import Reading
from epp.pb.accesslog_entry_pb2 import HTTPAccessLogEntry
from epp.pb.accesslog_service_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse
from epp.wire.service import Call, Handler, Methods

log = logging.getLogger(__name__)

PATH = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
NAMESPACE = "tierwise"
PICK = "pick"
LAST_BYTE = "time_to_last_downstream_tx_byte"
GONE = frozenset({"downstream_connection_termination", "downstream_remote_reset"})
"""The response flags of a client that left."""
SAMPLE = "sample"
"""The name of the route whose responses pass through the picker."""
CLOSED = "closed"
"""The name of the route for paths that are not open to clients."""
MAX_DIGITS = 20
"""The most digits of a pick id; a 64-bit number has no more."""


class Ends(Protocol):
    """The part of ``epp.picking.picks`` that closes picks."""

    def ended(self, pick_id: int, outcome: Outcome) -> bool:
        """Close the pick; returns False if it is unknown or already closed."""


@dataclass(slots=True)
class AccessLogStatistics:
    """Counts of log entries since the start."""

    entries: int = 0
    ended: int = 0
    """Entries that closed a pick."""
    without_pick: int = 0
    """Requests that the picker did not place: refused, too large, or served while the picker was down."""
    sampled: int = 0
    """Picks whose whole response the exchange has seen, and which it has therefore closed."""
    closed_path: int = 0
    """Requests for a path that is not open to clients."""
    unmatched: int = 0
    """Other picks closed before, by the exchange or a lease, or made by an earlier picker."""
    garbage: int = 0
    """Messages or pick ids that cannot be read."""


class AccessLog:
    """The service to which the proxy sends its log. Owner: the event loop."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._counts = AccessLogStatistics()

    def methods(self) -> Methods:
        """Return the methods that a transport hosts."""
        return {PATH: lambda call: _Stream(self, call)}

    def statistics(self) -> AccessLogStatistics:
        """Return the live counts."""
        return self._counts

    def readings(self) -> Iterator[Reading]:
        """Return what became of the entries, for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_access_log_entries",
            "Entries of the proxy's access log, by what they told: ended (closed a pick), without_pick, "
            "closed_path (not open to clients), unmatched (closed before), garbage.",
            ("result",),
            [((name,), count) for name, count in asdict(self._counts).items() if name != "entries"],
            counter=True,
        )

    def received(self, message: bytes) -> None:
        """Take one message of a stream; a message that cannot be decoded is counted."""
        try:
            entries = StreamAccessLogsMessage.FromString(message).http_logs.log_entry
        except DecodeError:
            self._counts.garbage += 1
            return
        for entry in entries:
            self._take(entry)

    def _take(self, entry: HTTPAccessLogEntry) -> None:
        counts = self._counts
        counts.entries += 1
        common = entry.common_properties
        if common.intermediate_log_entry:
            return
        if common.route_name == CLOSED:
            counts.closed_path += 1
            return
        ours = common.metadata.filter_metadata.get(NAMESPACE)
        if ours is None:
            counts.without_pick += 1
            return
        pick = ours.fields[PICK].string_value
        if not (pick.isascii() and pick.isdigit() and len(pick) <= MAX_DIGITS):
            counts.garbage += 1
        elif self._ends.ended(int(pick), outcome(entry)):
            counts.ended += 1
        elif common.route_name == SAMPLE:
            counts.sampled += 1
        else:
            counts.unmatched += 1


class _Stream(Handler):
    """The stream of one worker thread of the proxy."""

    def __init__(self, log_: AccessLog, call: Call) -> None:
        self._log = log_
        self._call = call

    @override
    def received(self, message: bytes) -> None:
        self._log.received(message)

    @override
    def half_closed(self) -> None:
        self._call.send(StreamAccessLogsResponse().SerializeToString())
        self._call.finish()

    @override
    def cancelled(self) -> None:
        pass


def outcome(entry: HTTPAccessLogEntry) -> Outcome:
    """Return the outcome of a request, as far as ``entry`` describes it."""
    common, response = entry.common_properties, entry.response
    took = common.time_to_last_downstream_tx_byte if common.HasField(LAST_BYTE) else common.duration
    flags = [field.name for field, is_set in common.response_flags.ListFields() if is_set]
    errors = [flag for flag in flags if flag not in GONE]  # a client that leaves is not an error
    gone = len(errors) < len(flags)
    status = response.response_code.value or None
    if status is not None and status not in GOOD_STATUSES:
        errors.append(MODEL_SERVER_ERROR)
    streaming = "text/event-stream" in response.response_headers.get("content-type", "")
    return Outcome(
        cause=Cause.DISCONNECTED if gone else Cause.COMPLETED,
        status=status,
        duration_s=took.seconds + took.nanos * 1e-9,
        response_bytes=response.response_body_bytes,
        streaming=streaming,
        served_by=_served_by(entry),
        errors=errors,
        unanswered=gone and streaming and not response.response_body_bytes,
    )


def _served_by(entry: HTTPAccessLogEntry) -> str | None:
    at = entry.common_properties.upstream_remote_address.socket_address
    if not at.address:
        return None
    return f"[{at.address}]:{at.port_value}" if ":" in at.address else f"{at.address}:{at.port_value}"
