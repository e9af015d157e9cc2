"""How much one client may ask of us. Units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epp.ports.door import HANDSHAKE_S, MAX_HANDSHAKES
from epp.wire.http2.floods import FLOOD_RATES, Flood, Rate

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a transport. The defaults suit one trusted proxy that carries all requests, and survive a bad one."""

    max_receive_message_bytes: int = 4 * MIB
    """Of one gRPC message; a larger one gets RESOURCE_EXHAUSTED."""
    max_concurrent_streams: int = 20_000
    """Of one connection; told to the client, and refused above."""
    max_streams: int = 40_000
    """Of all connections. A connection may have as many as places are free, and all connections of an address three
    times as many, so that places are left to the others. A proxy that is alone gets 30,000 on any number of
    connections: what 150 engines with 200 running requests each have in flight."""
    max_connections: int = 2_048
    """Of one server. A guess: 64 proxies of 32 workers. Beyond, a new one takes the place of one of the address
    that has the most."""
    max_frame_bytes: int = 16 * KIB
    """Payload of one frame; 16,384 to 16,777,215."""
    stream_window_bytes: int = 1 * MIB
    connection_window_bytes: int = 16 * MIB
    max_header_list_bytes: int = 16 * KIB
    """Of one request's fields, 32 bytes added for each; told to the client; above it a request gets 431."""
    max_header_block_bytes: int = 64 * KIB
    """Of one header block, packed or unpacked; above it the connection ends."""
    max_continuations: int = 256
    """CONTINUATION frames of one header block."""
    send_high_water_bytes: int = 1 * MIB
    """Unsent bytes of one stream above which it gets no more receive window."""
    connection_high_water_bytes: int = 64 * MIB
    """Unsent bytes of a connection above which none of its streams gets more receive window."""
    max_stream_queue_bytes: int = 64 * MIB
    """Unsent bytes of one stream above which it is reset."""
    max_connection_queue_bytes: int = 256 * MIB
    """Unsent bytes of all streams of a connection above which the one that adds to them is reset."""
    max_assembly_bytes: int = 256 * MIB
    """Of one connection's messages that are still arriving; the one that crosses it gets RESOURCE_EXHAUSTED."""
    max_buffered_bytes: int = 1024 * MIB
    """Unsent and of messages that are still arriving, of all connections (``epp.wire.http2.share``)."""
    max_unread_bytes: int = 1 * MIB
    """Answers to control frames that a client has not read, above which the connection ends."""
    stall_s: float = 60.0
    """How long an answer may wait for window that never comes before its stream is reset."""
    max_handshakes: int = MAX_HANDSHAKES
    """Of TLS, under way; each takes 50 KB."""
    header_share: float = 0.25
    """Of a core, that decoding one connection's headers may take for ever; beyond, the connection waits. An Envoy that
    traces sends one new block with each request, of 170 units of work: 4,000 a second are 0.17 of a core."""
    first_message_s: float = 60.0
    """How long a stream may be open without a message before it is reset."""
    handshake_s: float = HANDSHAKE_S
    """How long a connection may take for its TLS handshake, and then to send its preface."""
    linger_s: float = 1.0
    """How long a connection that we ended is still read, so that the client sees our GOAWAY."""
    floods: Mapping[Flood, Rate] = field(default_factory=lambda: FLOOD_RATES)
