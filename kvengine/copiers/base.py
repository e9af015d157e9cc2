"""The interface of copiers, and what each of them guarantees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple, NewType

from kvengine.layout import Fragments

JobId = NewType("JobId", int)


class Direction(Enum):
    """The direction of a copy, as the engine sees it."""

    LOAD = "load"
    """From host memory to the device."""
    STORE = "store"
    """From the device to host memory."""


class Done(NamedTuple):
    """How and when a job ended."""

    job: JobId
    direction: Direction
    ok: bool
    """If False, the destination's bytes are undefined."""
    copied_bytes: int
    seconds: float
    """From submission to the end of the copy, or to the poll that noticed the end if the device does not report its
    time."""


class Copier(ABC):
    """Copies in the background. Owner: one thread, which submits and polls.

    Guarantees: each job is reported as done exactly once, whatever happens to it. A store reads the device only after
    all work that was launched on it before ``submit``. A load may write at once, so nothing else may use its
    destination. Loads do not wait for stores.
    """

    @abstractmethod
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        """Begin a job. Never raises and never waits.

        The memory on both sides must stay allocated until the job is done.
        """

    @abstractmethod
    def poll(self) -> list[Done]:
        """Return the jobs that ended since the last call. Never waits."""

    @abstractmethod
    def close(self) -> None:
        """Let the copies under way end; the next poll returns every job that was still open. Never raises."""
