"""Header blocks as they arrive: decoded once, and remembered while that stays true.

A proxy sends the same few blocks all day, each a handful of table references, and decoding one costs more than all the
frames of a small call. A block's meaning depends on the dynamic table, so what is remembered is dropped whenever the
table changes, and only blocks that leave the table alone are remembered.

Source: RFC 7541; the ``hpack`` library decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from hpack import Decoder, HPACKError, OversizedHeaderListError

from epp.wire.errors import ConnectionFault, ErrorCode
from epp.wire.fields import Field, HttpHead, request_head
from epp.wire.floods import Flood

Head = TypeVar("Head")
_REMEMBERED = 128
_REMEMBERED_BLOCK_BYTES = 1024


class HeaderReader(Generic[Head]):
    """Decodes one connection's header blocks, which must all come through here, in order.

    ``interpret`` is what the layer above makes of a head; a pure function, since its result is remembered.
    """

    __slots__ = ("_decoder", "_interpret", "_known", "_max_bytes")

    def __init__(self, max_header_block_bytes: int, interpret: Callable[[HttpHead], Head]) -> None:
        self._decoder = Decoder(max_header_list_size=max_header_block_bytes)
        self._interpret = interpret
        self._known: dict[bytes, tuple[HttpHead, Head]] = {}
        self._max_bytes = max_header_block_bytes

    def request(self, block: bytes) -> tuple[HttpHead, Head]:
        """Return a request's head, and what it means. Raises: Malformed, ConnectionFault."""
        if known := self._known.get(block):
            return known
        before = self._table()
        head = request_head(self.fields(block))
        result = (head, self._interpret(head))
        if len(block) <= _REMEMBERED_BLOCK_BYTES and self._same(before):
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = result
        return result

    def fields(self, block: bytes) -> Sequence[Field]:
        """Return a block's fields, unchecked. Raises: ConnectionFault; the connection's state is then lost."""
        before = self._table()
        try:
            section = cast("Sequence[Field]", self._decoder.decode(block, raw=True))  # a list, whatever its type says
        except OversizedHeaderListError:
            reason = f"a header block of more than {self._max_bytes} bytes"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, Flood.HEADER_BOMB) from None
        except HPACKError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, type(error).__name__) from None
        if not self._same(before):
            self._known.clear()
        return section

    def _table(self) -> tuple[object, int, int]:
        """Return what differs after any change of the dynamic table: its newest entry, its length, its size."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None, len(entries), table.maxsize)

    def _same(self, before: tuple[object, int, int]) -> bool:
        newest, *rest = self._table()
        return newest is before[0] and rest == [before[1], before[2]]
