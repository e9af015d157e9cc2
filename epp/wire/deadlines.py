"""The deadlines of one connection's calls, the next one first."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sized
from heapq import heapify, heappop, heappush
from typing import Protocol

_SPARE = 1024


class Ids(Sized, Container[int], Protocol):
    """The ids of the streams that are open."""


class Deadlines:
    """A heap of deadlines by stream; those of ended calls stay in it until they pass or become the majority.

    Invariant: at most ``2 * len(open_ids) + 1024`` deadlines. Owned by one Session.
    """

    __slots__ = ("_heap", "_open_ids", "next")

    def __init__(self, open_ids: Ids) -> None:
        self._heap: list[tuple[float, int]] = []
        self._open_ids = open_ids
        self.next: float | None = None
        """When the next deadline passes, which may be of an ended call; None without any."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, stream_id: int) -> None:
        """Note that the call of ``stream_id`` has to end at ``when``."""
        heappush(self._heap, (when, stream_id))
        if len(self._heap) > 2 * len(self._open_ids) + _SPARE:
            self._heap = [deadline for deadline in self._heap if deadline[1] in self._open_ids]
            heapify(self._heap)
        self._look()

    def passed(self, now: float) -> Iterator[int]:
        """Take out and yield the streams whose deadlines have passed at ``now``."""
        while self._heap and self._heap[0][0] <= now:
            stream_id = heappop(self._heap)[1]
            self._look()
            yield stream_id

    def _look(self) -> None:
        self.next = self._heap[0][0] if self._heap else None
