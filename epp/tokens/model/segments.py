"""A cache of pieces of text and their token ids, bounded in bytes; the least recently used are evicted first."""

from __future__ import annotations

import sys
from collections import OrderedDict
from threading import Lock

ENTRY_BYTES = 250
"""The memory that Python needs for an entry besides the text and the ids. Source: tracemalloc, CPython 3.11."""


class Segments:
    """The cache of one model. Any thread may call it.

    Invariant: ``used_bytes`` is the size of all entries, and at most ``capacity_bytes``.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.hits = self.misses = 0
        """How many characters were in pieces that were found, and in pieces that were not."""
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> bytes | None:
        """Return the token ids of ``text``, or None. A piece that is found becomes the most recently used."""
        with self._lock:
            ids = self._known.get(text)
            if ids is None:
                self.misses += len(text)
                return None
            self._known.move_to_end(text)
            self.hits += len(text)
            return ids

    def put(self, text: str, ids: bytes) -> None:
        """Add the token ids of ``text``; a piece that is already there must have the same ones."""
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
        """Check the invariant. Raises: AssertionError if it does not hold."""
        assert self.used_bytes == sum(_size(*item) for item in self._known.items())  # noqa: S101
        assert self.used_bytes <= self.capacity_bytes  # noqa: S101


def _size(text: str, ids: bytes) -> int:
    return sys.getsizeof(text) + sys.getsizeof(ids) + ENTRY_BYTES
