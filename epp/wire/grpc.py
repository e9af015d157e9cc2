"""gRPC over HTTP/2: the meaning of a request's head, messages from DATA, and our header and trailer blocks.

Source: gRPC's PROTOCOL-HTTP2.md and compression.md.
"""

from __future__ import annotations

import re
import struct

import msgspec

from epp.wire.http2.errors import WireError
from epp.wire.http2.fields import HttpHead, block, literal
from epp.wire.service import Status

PREFIX_BYTES = 5
SMALL_BYTES = 256
"""Pieces of a message below this size cost more by their number than by their bytes."""
_PREFIX = struct.Struct(">BI")
pack_prefix = _PREFIX.pack
"""Returns the five bytes that go before a message; takes 0, for identity, and the message's length."""
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_CONTENT_TYPE = re.compile(r"application/grpc(?:$|[+;].*)")
_OWN_FIELDS = frozenset(("te", "content-type", "content-length"))
_MAX_TEXT_BYTES = 6 << 10  # of an encoded grpc-message, under the 8 KiB of metadata that gRPC clients take

RESPONSE_HEAD = block((b":status", b"200"), (b"content-type", b"application/grpc"))
_IDENTITY_ONLY = literal(b"grpc-accept-encoding", b"identity")


class GrpcFault(WireError):
    """Ends the call with ``status`` and a message."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Refusal(msgspec.Struct, frozen=True):
    """The plain HTTP answer to a request that is not a gRPC call."""

    http_status: int
    text: str
    head_only: bool = False
    """Whether the answer is to HEAD, and must go without its content (RFC 9110 section 9.3.2)."""


class GrpcHead(msgspec.Struct, frozen=True):
    """The meaning of a request's head for gRPC."""

    path: str
    metadata: tuple[tuple[str, str], ...]
    timeout_s: float | None = None
    compressed: bool = False
    """Whether ``grpc-encoding`` names a compression; none is supported."""
    refusal: Refusal | None = None
    fault: GrpcFault | None = None


def interpret(head: HttpHead) -> GrpcHead:
    """Return the meaning of ``head``; a pure function."""
    fields = dict(head.fields)
    content_type = fields.get("content-type", "")
    if not _CONTENT_TYPE.match(content_type.lower()):
        text = f"content-type {content_type[:100]!r}: this port serves gRPC, application/grpc\n"
        return GrpcHead(head.path, (), refusal=Refusal(415, text, head.method == "HEAD"))
    if head.method != "POST":
        text = f"method {head.method[:20]!r}: gRPC calls are POST\n"
        return GrpcHead(head.path, (), refusal=Refusal(405, text, head.method == "HEAD"))
    timeout_s, fault = None, None
    if (given := fields.get("grpc-timeout")) is not None:
        try:
            timeout_s = parse_timeout(given)
        except GrpcFault as error:
            fault = error
    metadata = tuple(f for f in head.fields if f[0] not in _OWN_FIELDS and not f[0].startswith("grpc-"))
    compressed = fields.get("grpc-encoding", "identity") != "identity"
    return GrpcHead(head.path, metadata, timeout_s, compressed, fault=fault)


def parse_timeout(value: str) -> float:
    """Return the seconds that a ``grpc-timeout`` of ``value`` allows. Raises: GrpcFault."""
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise GrpcFault(Status.INTERNAL, f"grpc-timeout {value[:20]!r} is not 1 to 8 digits and one of HMSmun")
    return int(match[1]) * _SECONDS[match[2]]


def _percent_encoded(text: str) -> bytes:
    """Return a ``grpc-message``: printable ASCII stays, all else becomes %XX of its UTF-8; a long one is cut."""
    encoded = bytearray()
    for character in text[:_MAX_TEXT_BYTES]:
        raw = character.encode("utf-8", "surrogatepass")
        piece = raw if b"!" <= raw <= b"~" and raw != b"%" else b"".join(b"%%%02X" % byte for byte in raw)
        if len(encoded) + len(piece) > _MAX_TEXT_BYTES:
            break
        encoded += piece
    return bytes(encoded)


def trailers(status: Status, message: str) -> bytes:
    """Return the block that ends a response."""
    if status is Status.OK and not message:
        return _OK
    fields = [literal(b"grpc-status", str(int(status)).encode())]
    if message:
        fields.append(literal(b"grpc-message", _percent_encoded(message)))
    if status is Status.UNIMPLEMENTED:
        fields.append(_IDENTITY_ONLY)
    return b"".join(fields)


_OK = literal(b"grpc-status", b"0")


def refusal_head(refusal: Refusal) -> bytes:
    """Return the header block of a plain HTTP answer."""
    length = str(len(refusal.text)).encode()
    status = str(refusal.http_status).encode()
    return block((b":status", status), (b"content-type", b"text/plain"), (b"content-length", length))


class MessageReader:
    """Assembles messages from pieces of any size; it copies each byte of a message in several pieces once.

    ``held_bytes`` is the size of the incomplete message with its prefix, as far as it has arrived; 0 between messages.
    """

    __slots__ = ("_compressed", "_limit", "_missing", "_parts", "_prefix", "fault", "held_bytes")

    def __init__(self, max_message_bytes: int, compressed: bool) -> None:
        self.held_bytes = 0
        self.fault: GrpcFault | None = None
        """Why no more messages can be read, if so; the messages before the fault are valid."""
        self._limit = max_message_bytes
        self._compressed = compressed
        self._prefix = b""  # of the next message, while incomplete
        self._parts: list[bytes | bytearray] = []  # of a message whose prefix is complete
        self._missing = 0  # bytes of that message

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that ``data`` completes."""
        start, end = 0, len(data)
        if end >= PREFIX_BYTES and not self.held_bytes and not self.fault:
            flag, length = _PREFIX.unpack_from(data)
            if not flag and length == end - PREFIX_BYTES <= self._limit:  # a frame is a message, as most are
                return [data[PREFIX_BYTES:]]
        messages: list[bytes] = []
        if self._missing:
            if end < self._missing:
                if end < SMALL_BYTES:
                    self._keep(data)
                else:
                    self._parts.append(data)  # most frames of a large message; _keep would do the same
                self._missing -= end
                self.held_bytes += end
                return messages
            self._parts.append(data[: self._missing])
            messages.append(b"".join(self._parts))
            self._parts.clear()
            start, self._missing = self._missing, 0
        elif self._prefix:
            data = self._prefix + data
            end = len(data)
            self._prefix = b""
        while end - start >= PREFIX_BYTES and not self.fault:
            flag, length = _PREFIX.unpack_from(data, start)
            start += PREFIX_BYTES
            stop = start + length
            if flag or length > self._limit:
                self.fault = self._refuse(flag, length)
            elif stop <= end:
                messages.append(data[start:stop])
                start = stop
            else:
                self._keep(data[start:])
                self._missing = stop - end
                self.held_bytes = end - start + PREFIX_BYTES
                return messages
        self._prefix = b"" if self.fault else data[start:]
        self.held_bytes = len(self._prefix)
        return messages

    def _keep(self, piece: bytes) -> None:
        """Keep a piece of a message; small neighbors share one object, since each object takes 50 bytes more."""
        parts = self._parts
        if len(piece) >= SMALL_BYTES:
            parts.append(piece)
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += piece
        else:
            parts.append(bytearray(piece))

    def drop(self) -> None:
        """Drop the incomplete message; ``feed`` is not called again."""
        self._parts.clear()
        self._prefix = b""
        self.held_bytes = 0

    def _refuse(self, flag: int, length: int) -> GrpcFault:
        if flag == 1 and self._compressed:
            return GrpcFault(Status.UNIMPLEMENTED, "compressed messages are not supported; send them as identity")
        if flag:
            return GrpcFault(Status.INTERNAL, f"a message with flag {flag} and no grpc-encoding")
        reason = f"a message of {length} bytes; at most {self._limit} are accepted"
        return GrpcFault(Status.RESOURCE_EXHAUSTED, reason)
