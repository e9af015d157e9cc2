"""Faults of clients, which end one stream or the whole connection."""

from __future__ import annotations

from enum import IntEnum

from epp.wire.http2.floods import Flood


class ErrorCode(IntEnum):
    """The reasons in RST_STREAM and GOAWAY. Source: RFC 9113 section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class WireError(Exception):
    """Base of all faults of clients; never leaves epp.wire."""


class ConnectionFault(WireError):
    """Ends the connection with a GOAWAY, whose debug data is the text.

    ``flood`` is the bound that was crossed, if there was one; such ends are counted by kind.
    """

    def __init__(self, code: ErrorCode, reason: str, flood: Flood | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.flood = flood


class StreamFault(WireError):
    """Ends one stream with RST_STREAM; the other streams go on."""

    def __init__(self, stream_id: int, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.stream_id = stream_id
        self.code = code


class Malformed(WireError):
    """Reports a field section that RFC 9113 section 8 forbids; it becomes a StreamFault(PROTOCOL_ERROR)."""
