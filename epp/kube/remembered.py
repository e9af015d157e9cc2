"""A bounded memory of answers, each of which is true for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Answers by key. Invariant: at most ``most``, of which the one that was put first goes first. O(1)."""

    def __init__(self, lasts_s: float, most: int, clock: Callable[[], float]) -> None:
        self._lasts_s, self._most, self._clock = lasts_s, most, clock
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: K) -> V | None:
        """Return the answer; None if there is none, or it is too old."""
        found = self._answers.get(key)
        if found is None or self._clock() >= found[0]:
            return None
        return found[1]

    def put(self, key: K, answer: V) -> None:
        """Remember ``answer`` from now on."""
        self._answers.pop(key, None)
        if len(self._answers) >= self._most:
            self._answers.popitem(last=False)
        self._answers[key] = self._clock() + self._lasts_s, answer
