"""What a copier promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple, NewType

from kvengine.layout import Fragments

JobId = NewType("JobId", int)


class Direction(Enum):
    """Which way."""

    LOAD = "load"
    """Host to device."""
    STORE = "store"
    """Device to host."""


class Done(NamedTuple):
    """How a job ended."""

    job: JobId
    direction: Direction
    ok: bool
    """False: the destination's bytes are undefined."""
    copied_bytes: int
    seconds: float
    """From submission to the end of the copy, or to the poll that saw it where the device does not say when."""


class Copier(ABC):
    """Copies in the background. Owner: one thread, which submits and polls.

    Promises: a job is done exactly once, whatever happens to it; a store reads the device only after all that was
    launched on it before ``submit``; a load writes at once, so that its destination must be nobody's; loads do not wait
    for stores.
    """

    @abstractmethod
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        """Begin a job. The memory on both sides must stay until it is done. Never raises and never waits."""

    @abstractmethod
    def poll(self) -> list[Done]:
        """The jobs that ended since the last call. Never waits."""

    @abstractmethod
    def close(self) -> None:
        """End what runs, and be done with every job. Never raises."""
