"""The interface of eviction policies, which order the idle chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import ClassVar, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Policy(ABC, Generic[Key]):
    """The idle chunks, and which of them is evicted next. Each call is O(1). Owner: the index."""

    is_in_order_of_use: ClassVar[bool] = False
    """Whether chunks are evicted in order of last use, so that of chunks last used together, the beginning of the
    prompt stays longest."""

    @abstractmethod
    def add(self, key: Key) -> None:
        """Add ``key``, which has become idle after a use or a store.

        All else being equal, the chunk that has been idle longest is evicted first.
        """

    @abstractmethod
    def remove(self, key: Key) -> None:
        """Remove ``key``, which was pinned again or forgotten. Raises: KeyError when it is not idle."""

    @abstractmethod
    def refresh(self, key: Key) -> None:
        """Make ``key``, which is idle, as recent as if it were added now, without counting another use.

        Raises: KeyError when it is not idle.
        """

    def forget(self, key: Key) -> None:
        """Note that ``key``, which was removed, has lost its slot and will not become idle again.

        Does nothing by default.
        """

    @abstractmethod
    def evict(self) -> Key:
        """Remove and return the next chunk to evict. Raises: KeyError when nothing is idle."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of idle chunks."""

    @abstractmethod
    def __iter__(self) -> Iterator[Key]:
        """Iterate over the idle chunks in eviction order."""
