"""What a transport has done: counted where it happens, read as a frozen snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from epp.wire.floods import Flood


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot. Totals since the start, except where it says *now*."""

    connections: int = 0
    """Now."""
    streams: int = 0
    """Calls that are open now."""
    connections_total: int = 0
    streams_total: int = 0
    messages_received: int = 0
    messages_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    resets_received: int = 0
    resets_unanswered: int = 0
    """Of these, resets of streams on which we had sent nothing yet: the only ones that count as a flood."""
    resets_sent: int = 0
    refused_streams: int = 0
    connection_faults: int = 0
    handler_errors: int = 0
    """Calls whose handler raised; the log has the tracebacks."""
    deadlines_exceeded: int = 0
    floods: Mapping[Flood, int] = field(default_factory=dict)
    """Connections that were ended, by the bound that they crossed."""


class Counters:
    """The live counts of one server. Owned by its event loop."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connection_faults",
        "connections",
        "connections_total",
        "deadlines_exceeded",
        "floods",
        "handler_errors",
        "messages_received",
        "messages_sent",
        "refused_streams",
        "resets_received",
        "resets_sent",
        "resets_unanswered",
        "streams",
        "streams_total",
    )

    def __init__(self) -> None:
        self.connections = self.connections_total = self.streams = self.streams_total = 0
        self.messages_received = self.messages_sent = self.bytes_received = self.bytes_sent = 0
        self.resets_received = self.resets_unanswered = self.resets_sent = self.refused_streams = 0
        self.connection_faults = self.handler_errors = self.deadlines_exceeded = 0
        self.floods: Counter[Flood] = Counter()

    def snapshot(self) -> Statistics:
        """Return the counts as they are now."""
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "floods"}
        return Statistics(**counts, floods=MappingProxyType(dict(self.floods)))
