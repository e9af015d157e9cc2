"""Pieces of text and their tokens, the least recently used forgotten first. Bounded in bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from threading import Lock

ENTRY_BYTES = 250
"""What Python needs for an entry besides the text and the tokens. Source: tracemalloc, CPython 3.11."""


class Segments:
    """Invariant: ``used_bytes`` is what all entries take, and at most ``capacity_bytes``. Any thread may call it."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.hits = self.misses = 0
        """Characters whose tokens were known, and were not."""
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> bytes | None:
        """Its tokens, if they are known; it counts as used."""
        with self._lock:
            ids = self._known.get(text)
            if ids is None:
                self.misses += len(text)
                return None
            self._known.move_to_end(text)
            self.hits += len(text)
            return ids

    def put(self, text: str, ids: bytes) -> None:
        """Remember the tokens of ``text``, which are not known yet or are the same."""
        size = _size(text, ids)
        if size > self.capacity_bytes:
            return
        with self._lock:
            if text in self._known:
                return
            self._known[text] = ids
            self.used_bytes += size
            while self.used_bytes > self.capacity_bytes:
                self.used_bytes -= _size(*self._known.popitem(last=False))

    def __len__(self) -> int:
        return len(self._known)

    def check(self) -> None:
        """Raise AssertionError unless the invariant holds."""
        assert self.used_bytes == sum(_size(*item) for item in self._known.items())  # noqa: S101
        assert self.used_bytes <= self.capacity_bytes  # noqa: S101


def _size(text: str, ids: bytes) -> int:
    return sys.getsizeof(text) + sys.getsizeof(ids) + ENTRY_BYTES
