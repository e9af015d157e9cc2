"""The order in which idle chunks are evicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import ClassVar, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Policy(ABC, Generic[Key]):
    """The idle chunks, and which of them goes next. O(1) for each call. Owner: the index."""

    is_in_order_of_use: ClassVar[bool] = False
    """Whether what was used first goes first, so that of chunks used together the beginnings are left."""

    @abstractmethod
    def add(self, key: Key) -> None:
        """``key`` is idle: it has just been used, or stored. What is idle longer goes first, all else being equal."""

    @abstractmethod
    def remove(self, key: Key) -> None:
        """``key`` is not idle any more: pinned again, or forgotten. Raises: KeyError when it was not."""

    @abstractmethod
    def refresh(self, key: Key) -> None:
        """``key``, which is idle, was in use until now: as new as if it were added now, and no use more.

        Raises: KeyError when it is not idle.
        """

    def forget(self, key: Key) -> None:
        """``key``, which was removed, will not come back: its memory was given up. Does nothing by default."""

    @abstractmethod
    def evict(self) -> Key:
        """Take the next victim out. Raises: KeyError when nothing is idle."""

    @abstractmethod
    def __len__(self) -> int:
        """How many are idle."""

    @abstractmethod
    def __iter__(self) -> Iterator[Key]:
        """The idle ones, those that go first coming first."""
