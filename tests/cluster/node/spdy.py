"""The server's side of SPDY/3.1, as far as the API server speaks it with a node: streams that carry bytes both ways.

Source: draft-mbelshe-httpbis-spdy-00, sections 2.2 (frames) and 2.6.10 (header compression). Windows are not kept,
since the API server keeps none.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN = 1
CONTROL = 0x8003
LARGEST_PART = 32768
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PAIRS = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug "
    "Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack("!I", len(word)) + word.encode() for word in (*_WORDS.split(), *_PAIRS)) + _REST.encode()
)


class Stream:
    """One stream: its headers, what arrives (``reader``), and what is sent."""

    def __init__(self, session: Session, number: int, headers: dict[str, str]) -> None:
        self._session, self.number, self.headers = session, number, headers
        self.reader = asyncio.StreamReader()

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Send bytes, and the stream's end with ``last``."""
        parts = [data[at : at + LARGEST_PART] for at in range(0, len(data), LARGEST_PART)] or [b""]
        for n, part in enumerate(parts):
            flags = FIN if last and n == len(parts) - 1 else 0
            await self._session.write(struct.pack("!II", self.number, flags << 24 | len(part)) + part)


class Session:
    """One connection. ``streams`` is its only reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, Stream] = {}

    async def streams(self) -> AsyncIterator[Stream]:
        """Yield the streams that the client opens, until the connection ends."""
        try:
            while True:
                first, second = struct.unpack("!II", await self._reader.readexactly(8))
                body = await self._reader.readexactly(second & 0xFFFFFF)
                flags = second >> 24
                if first >> 16 != CONTROL:
                    self._arrived(first, body, flags)
                    continue
                kind = first & 0xFFFF
                if kind == SYN_STREAM:
                    yield await self._opened(body, flags)
                elif kind == PING:
                    await self._control(PING, body)
                elif kind == RST_STREAM:
                    self._ended(struct.unpack_from("!I", body)[0])
                elif kind == GOAWAY:
                    return
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            for number in list(self._streams):
                self._ended(number)

    async def write(self, frame: bytes) -> None:
        """Write a whole frame."""
        self._writer.write(frame)
        await self._writer.drain()

    async def _opened(self, body: bytes, flags: int) -> Stream:
        (number,) = struct.unpack_from("!I", body)
        stream = Stream(self, number, _headers(self._inflate.decompress(body[10:])))
        self._streams[number] = stream
        if flags & FIN:
            stream.reader.feed_eof()
        empty = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._control(SYN_REPLY, struct.pack("!I", number) + empty)
        return stream

    async def _control(self, kind: int, body: bytes) -> None:
        await self.write(struct.pack("!HHI", CONTROL, kind, len(body)) + body)

    def _arrived(self, number: int, body: bytes, flags: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            stream.reader.feed_data(body)
            if flags & FIN:
                self._ended(number)

    def _ended(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            with suppress(AssertionError):
                stream.reader.feed_eof()


def _headers(block: bytes) -> dict[str, str]:
    (count,), at = struct.unpack_from("!I", block), 4
    words = []
    for _ in range(2 * count):
        (length,) = struct.unpack_from("!I", block, at)
        words.append(block[at + 4 : at + 4 + length].decode())
        at += 4 + length
    return dict(zip(words[::2], words[1::2], strict=True))
