"""Field blocks by hand: HPACK representations as raw bytes, and the gRPC request that most cases start from.

Source: RFC 7541, sections 5 and 6. Nothing is Huffman-coded and nothing indexed unless a case asks for it, so that a
case may carry any byte and leaves no state behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.frames import Field

UNARY = b"/test.Echo/Unary"
STREAM = b"/test.Echo/Stream"


def integer(value: int, prefix_bits: int, pattern: int = 0) -> bytes:
    """An HPACK integer behind the bits of ``pattern``. Source: RFC 7541, 5.1."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((pattern | value,))
    out, rest = bytearray((pattern | limit,)), value - limit
    while rest >= 128:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def string(value: bytes) -> bytes:
    """A string literal without Huffman coding."""
    return integer(len(value), 7) + value


def literal(name: bytes, value: bytes) -> bytes:
    """A literal field, not indexed."""
    return b"\x00" + string(name) + string(value)


def remembered(name: bytes, value: bytes) -> bytes:
    """A literal field that enters the dynamic table."""
    return b"\x40" + string(name) + string(value)


def indexed(index: int) -> bytes:
    """A field from the static (1 to 61) or the dynamic table (62 and up)."""
    return integer(index, 7, 0x80)


def table_size(limit_bytes: int) -> bytes:
    """A dynamic table size update."""
    return integer(limit_bytes, 5, 0x20)


def block(fields: Iterable[Field]) -> bytes:
    """A field block of plain literals."""
    return b"".join(literal(name, value) for name, value in fields)


def call(*more: Field, path: bytes = UNARY, without: Iterable[bytes] = ()) -> list[Field]:
    """The request fields of a gRPC call, with ``more`` at the end. Source: gRPC over HTTP/2, Requests."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"conformance"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    return [field for field in fields if field[0] not in without] + list(more)


def replaced(name: bytes, value: bytes) -> list[Field]:
    """The request fields of a gRPC call with another value for ``name``, in its place."""
    return [(key, value if key == name else old) for key, old in call()]


def message(content: bytes, flag: int = 0) -> bytes:
    """A length-prefixed gRPC message."""
    return bytes((flag,)) + len(content).to_bytes(4) + content
