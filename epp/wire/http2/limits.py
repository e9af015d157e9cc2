"""Bounds on the resources that clients may use. The names contain the units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epp.ports.door import HANDSHAKE_S, MAX_HANDSHAKES
from epp.wire.http2.floods import FLOOD_RATES, Flood, Rate

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a transport. The defaults suit one trusted proxy for all requests, and survive a hostile one."""

    max_receive_message_bytes: int = 4 * MIB
    """Size of one gRPC message; a larger one gets RESOURCE_EXHAUSTED."""
    max_concurrent_streams: int = 20_000
    """Streams of one connection; announced in our SETTINGS, and refused above."""
    max_streams: int = 40_000
    """Streams of all connections. A connection may have as many as places are free, and all connections of an address
    three times as many, so that places are left to others. A proxy that is alone gets 30,000 on any number of
    connections: what 150 engines with 200 running requests each have in flight."""
    max_connections: int = 2_048
    """Connections of one server. A guess: 64 proxies of 32 workers. Above it, a new connection takes the place of one
    of the address that has the most."""
    max_frame_bytes: int = 16 * KIB
    """Payload of one frame; 16,384 to 16,777,215."""
    stream_window_bytes: int = 1 * MIB
    connection_window_bytes: int = 16 * MIB
    max_header_list_bytes: int = 16 * KIB
    """Size of one request's fields, with 32 bytes added for each; announced in our SETTINGS. Above it, a request gets
    status 431."""
    max_header_block_bytes: int = 64 * KIB
    """Size of one header block, packed or unpacked; above it the connection ends."""
    max_continuations: int = 256
    """Number of CONTINUATION frames of one header block."""
    send_high_water_bytes: int = 1 * MIB
    """Unsent bytes of one stream above which it gets no more receive window."""
    connection_high_water_bytes: int = 64 * MIB
    """Unsent bytes of a connection above which none of its streams gets more receive window."""
    max_stream_queue_bytes: int = 64 * MIB
    """Unsent bytes of one stream above which it is reset."""
    max_connection_queue_bytes: int = 256 * MIB
    """Unsent bytes of all streams of a connection above which the one that adds to them is reset."""
    max_assembly_bytes: int = 256 * MIB
    """Bytes of one connection's incomplete messages; the call that exceeds it gets RESOURCE_EXHAUSTED."""
    max_buffered_bytes: int = 1024 * MIB
    """Unsent bytes and bytes of incomplete messages, of all connections (``epp.wire.http2.share``)."""
    max_unread_bytes: int = 1 * MIB
    """Answers to control frames that a client has not read, above which the connection ends."""
    stall_s: float = 60.0
    """How long an answer may wait for the client's window before its stream is reset."""
    max_handshakes: int = MAX_HANDSHAKES
    """TLS handshakes in progress; each takes 50 KB."""
    header_share: float = 0.25
    """The share of a core that decoding the headers of one address may take in the long run; above it, connections
    wait. An Envoy that traces sends a new block of 170 units of work with each request: 4,000 a second take 0.17."""
    first_message_s: float = 60.0
    """How long a stream may be open without a message before it is reset."""
    handshake_s: float = HANDSHAKE_S
    """How long a connection may take for its TLS handshake, and then to send its preface."""
    linger_s: float = 1.0
    """How long a connection that we ended is still read, so that the client receives our GOAWAY."""
    floods: Mapping[Flood, Rate] = field(default_factory=lambda: FLOOD_RATES)
