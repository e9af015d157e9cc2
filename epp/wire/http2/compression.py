"""The decoding of header blocks, with a cache of blocks whose meaning cannot have changed.

A proxy repeats the same few blocks, each a handful of table references, and to decode one costs more than all frames
of a small call. The meaning of a block depends on the dynamic table, so the cache is cleared whenever the table
changes, and only blocks that do not change the table enter it.

Source: RFC 7541; the ``hpack`` library decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from hpack import Decoder, HPACKError, OversizedHeaderListError

from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.fields import Field, HttpHead, request_head
from epp.wire.http2.floods import Flood

Head = TypeVar("Head")
WORK_S = 0.25e-6
"""The time of a unit of work, which is to decode one byte of Huffman code. ``hpack`` is pure Python. Source: measured
on 2 shared cores with Python 3.11, 2026-11."""
FIELD_WORK = 8
"""Units of work that each field costs besides its bytes."""
_REMEMBERED = 128
_REMEMBERED_BYTES = 64 << 10
"""Most bytes of the cached heads of one connection, as SETTINGS_MAX_HEADER_LIST_SIZE counts them: a few references can
unpack to many bytes."""


class HeaderReader(Generic[Head]):
    """Decodes all header blocks of one connection, which must pass through it in order.

    ``interpret`` turns a head into what the layer above uses. It is a pure function, since its result is cached.
    """

    __slots__ = ("_decoder", "_interpret", "_known", "_known_bytes", "_max_bytes", "work")

    def __init__(self, max_header_block_bytes: int, interpret: Callable[[HttpHead], Head]) -> None:
        self._decoder = Decoder(max_header_list_size=max_header_block_bytes)
        self._interpret = interpret
        self._known: dict[bytes, tuple[HttpHead, Head]] = {}
        self._known_bytes = 0
        self.work = 0
        """Work of all decoding so far; a cached block costs nothing. Units: WORK_S."""
        self._max_bytes = max_header_block_bytes

    def request(self, block: bytes) -> tuple[HttpHead, Head]:
        """Return a request's head, and its interpretation. Raises: Malformed, ConnectionFault."""
        if known := self._known.get(block):
            return known
        before = self._table()
        head = request_head(self.fields(block))
        result = (head, self._interpret(head))
        size = head.size_bytes
        if size <= _REMEMBERED_BYTES // 16 and self._same(before):
            if len(self._known) >= _REMEMBERED or self._known_bytes + size > _REMEMBERED_BYTES:
                self._forget()
            self._known[block] = result
            self._known_bytes += size
        return result

    def fields(self, block: bytes) -> Sequence[Field]:
        """Return a block's fields, unchecked. Raises: ConnectionFault; the dynamic table is then out of step."""
        before = self._table()
        try:
            section = cast("Sequence[Field]", self._decoder.decode(block, raw=True))  # a list, whatever its type says
        except OversizedHeaderListError:
            reason = f"a header block of more than {self._max_bytes} bytes"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, Flood.HEADER_BOMB) from None
        except HPACKError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, type(error).__name__) from None
        self.work += len(block) + FIELD_WORK * len(section)
        if not self._same(before):
            self._forget()
        return section

    def _forget(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def _table(self) -> tuple[object, int, int]:
        """Return values that differ after any change of the dynamic table: its newest entry, its length, its size."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None, len(entries), table.maxsize)

    def _same(self, before: tuple[object, int, int]) -> bool:
        newest, *rest = self._table()
        return newest is before[0] and rest == [before[1], before[2]]
