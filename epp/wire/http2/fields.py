"""Field sections: the rules for a request's header and trailer fields, and the encoding of our own.

Source: RFC 9113 sections 8.1 to 8.3; RFC 7541 section 6.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from epp.wire.http2.errors import Malformed

Field = tuple[bytes, bytes]

_NAME = re.compile(rb"[^\x00-\x20:A-Z\x7f-\xff]+")
_VALUE = re.compile(rb"(?:[^\x00\r\n \t](?:[^\x00\r\n]*[^\x00\r\n \t])?)?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_CONNECTION_SPECIFIC = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
FIELD_OVERHEAD_BYTES = 32


class HttpHead(msgspec.Struct, frozen=True):
    """A request's header section, checked."""

    method: str
    path: str
    fields: tuple[tuple[str, str], ...]
    """In order, lower-case names, without pseudo-fields."""
    content_length: int | None
    size_bytes: int
    """The size of the section, as SETTINGS_MAX_HEADER_LIST_SIZE counts it."""


def request_head(section: Sequence[Field]) -> HttpHead:
    """Return a request's head from its header section. Raises: Malformed."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[tuple[str, str]] = []
    content_length: int | None = None
    size = 0
    for name, value in section:
        size += len(name) + len(value) + FIELD_OVERHEAD_BYTES
        if name[:1] == b":":
            if fields:
                raise Malformed(f"{name!r} after a regular field")
            if name not in _PSEUDO or name in pseudo:
                raise Malformed(f"unknown or repeated pseudo-field {name!r}")
            _check_value(name, value)
            pseudo[name] = value
            continue
        _check_regular(name, value)
        if name == b"content-length":
            if not _DIGITS.fullmatch(value) or content_length not in (None, int(value)):
                raise Malformed(f"content-length {value!r}")
            content_length = int(value)
        elif name == b"host" and value.lower() != pseudo.get(b":authority", value).lower():
            raise Malformed("host differs from :authority")
        fields.append((name.decode("latin-1"), value.decode("latin-1")))
    method = pseudo.get(b":method", b"")
    path = pseudo.get(b":path", b"")
    _check_pseudo(method, path, pseudo)
    return HttpHead(method.decode("latin-1"), path.decode("latin-1"), tuple(fields), content_length, size)


def check_trailers(section: Sequence[Field]) -> None:
    """Check a request's trailer section. Raises: Malformed."""
    for name, value in section:
        if name[:1] == b":":
            raise Malformed(f"{name!r} in trailers")
        _check_regular(name, value)


def _check_regular(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise Malformed(f"field name {name!r}")
    _check_value(name, value)
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value.lower() != b"trailers"):
        raise Malformed(f"{name!r} has no place in HTTP/2")


def _check_value(name: bytes, value: bytes) -> None:
    if not _VALUE.fullmatch(value):
        raise Malformed(f"value of {name!r}")


def _check_pseudo(method: bytes, path: bytes, pseudo: dict[bytes, bytes]) -> None:
    if not method:
        raise Malformed(":method is missing")
    if method == b"CONNECT":
        if pseudo.keys() != {b":method", b":authority"}:
            raise Malformed("CONNECT takes :authority and nothing else")
    elif not pseudo.get(b":scheme") or not path:
        raise Malformed(":scheme or :path is missing")
    elif path[:1] != b"/" and (path != b"*" or method != b"OPTIONS"):
        raise Malformed(f":path {path!r}")


def _length(size: int) -> bytes:
    """Return an HPACK integer with a 7-bit prefix, no Huffman coding."""
    if size < 127:
        return bytes((size,))
    out = bytearray((127,))
    size -= 127
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """Return one field as an HPACK literal without indexing, which needs no encoder and no state."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def block(*section: Field) -> bytes:
    """Return a header block that does not change the peer's dynamic table."""
    return b"".join(b"\x88" if field == (b":status", b"200") else literal(*field) for field in section)
