"""Counts of a transport's work, which are read as frozen snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from epp.wire.http2.floods import Flood


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the counts. They are totals since the start, except where the docstring says *now*."""

    connections: int = 0
    """Open connections now."""
    streams: int = 0
    """Open calls now."""
    buffered_bytes: int = 0
    """Bytes of unsent answers and of incomplete messages now."""
    connections_total: int = 0
    streams_total: int = 0
    messages_received: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    resets_received: int = 0
    resets_unanswered: int = 0
    """Those of them on streams that we had not answered; only these count as a flood."""
    resets_sent: int = 0
    refused_streams: int = 0
    silent_streams: int = 0
    """Streams reset because no message arrived on them in time."""
    crowded_out_streams: int = 0
    """Streams reset because the process buffered too much, and their connection more than its share."""
    refused_connections: int = 0
    """Connections closed at once because too many were open, all of them in use."""
    displaced_connections: int = 0
    """Connections closed because too many were open, most of them from their address."""
    turns_cut: int = 0
    """How often a connection stopped reading because its address had used up its turn."""
    header_waits: int = 0
    """How often a connection stopped reading because its address's headers took more than their share of a core."""
    connection_faults: int = 0
    handler_errors: int = 0
    """Calls whose handlers raised; the log has the tracebacks."""
    deadlines_exceeded: int = 0
    floods: Mapping[Flood, int] = field(default_factory=dict)
    """Connections that were ended for a flood, by its kind."""


class Counters:
    """The live counts of one server. Owned by its event loop."""

    __slots__ = (
        "buffered_bytes",
        "bytes_received",
        "bytes_sent",
        "connection_faults",
        "connections",
        "connections_total",
        "crowded_out_streams",
        "deadlines_exceeded",
        "displaced_connections",
        "floods",
        "handler_errors",
        "header_waits",
        "messages_received",
        "messages_sent",
        "refused_connections",
        "refused_streams",
        "resets_received",
        "resets_sent",
        "resets_unanswered",
        "silent_streams",
        "streams",
        "streams_total",
        "turns_cut",
    )

    def __init__(self) -> None:
        self.connections = self.connections_total = self.streams = self.streams_total = 0
        self.messages_received = self.messages_sent = self.bytes_received = self.bytes_sent = 0
        self.resets_received = self.resets_unanswered = self.resets_sent = self.refused_streams = 0
        self.connection_faults = self.handler_errors = self.deadlines_exceeded = self.buffered_bytes = 0
        self.silent_streams = self.crowded_out_streams = self.refused_connections = self.displaced_connections = 0
        self.turns_cut = self.header_waits = 0
        self.floods: Counter[Flood] = Counter()

    def snapshot(self) -> Statistics:
        """Return the counts as they are now."""
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "floods"}
        return Statistics(**counts, floods=MappingProxyType(dict(self.floods)))
