"""SETTINGS: those that the server offers, and those of the client, checked.

Source: RFC 9113 section 6.5.2.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.limits import Limits

MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_WINDOW_BYTES = 65_535
DEFAULT_FRAME_BYTES = 1 << 14
MAX_FRAME_BYTES = (1 << 24) - 1

_PAIRS = struct.Struct(">HI")


class Setting(IntEnum):
    """The identifiers of settings that we send or apply."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


_RANGES = {
    Setting.ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    Setting.INITIAL_WINDOW_SIZE: (0, MAX_WINDOW_BYTES, ErrorCode.FLOW_CONTROL_ERROR),
    Setting.MAX_FRAME_SIZE: (DEFAULT_FRAME_BYTES, MAX_FRAME_BYTES, ErrorCode.PROTOCOL_ERROR),
}


def offered(limits: Limits) -> Mapping[int, int]:
    """Return the settings that the server sends first."""
    return {
        Setting.MAX_CONCURRENT_STREAMS: limits.max_concurrent_streams,
        Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        Setting.MAX_FRAME_SIZE: max(limits.max_frame_bytes, DEFAULT_FRAME_BYTES),
        Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
    }


def parse(payload: bytes) -> dict[int, int]:
    """Return the last value of each setting, including unknown ones. Raises: ConnectionFault for a forbidden value."""
    values: dict[int, int] = {}
    for key, value in _PAIRS.iter_unpack(payload):
        low, high, code = _RANGES.get(key, (0, 2**32, ErrorCode.NO_ERROR))
        if not low <= value <= high:
            raise ConnectionFault(code, f"{Setting(key).name} of {value} is not in {low} to {high}")
        values[key] = value
    return values
