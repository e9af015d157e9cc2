"""One publisher's batches in order: what is missing is asked for again, and what cannot be had is said.

Pure: messages in, acts out. A publisher numbers its batches from 0 (some from 1), keeps the last of them, and sends
those again that it is asked for (``replay``). Laws:

- A batch is applied once, and after all before it; else everything that was known is forgotten first.
- A number that goes back is another life of the publisher. So may be one that goes on: whoever asks for more after a
  gap asks for the last batch that it has, too, and compares.
- ``known`` says whether all that was ever published has been applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

FIRST = 1
"""A replay that begins here or before has everything: some publishers count from 1. Of one that counts from 0 and has
just let go of its very first batch, that one is missed."""
MOST_HELD = 10_000
"""Live batches that may wait for a replay."""
MOST_HELD_BYTES = 16 << 20


class Why(Enum):
    """Why it is not sure what an endpoint holds."""

    NOT_CONNECTED = "not connected"
    CATCHING_UP = "catching up"
    JOINED_LATE = "joined late"
    """It had published before, and offers no replay."""
    GAP = "gap"
    """Batches are missing, and it offers no replay."""
    REPLAY_TOO_SHORT = "replay too short"
    """It does not have the missing batches any more."""
    REPLAY_FAILED = "replay failed"
    UNREADABLE = "unreadable"
    """A batch could not be read."""


class Apply(NamedTuple):
    """Follow this batch."""

    payload: bytes


class Forget(NamedTuple):
    """Nothing is known of the publisher."""


class Replay(NamedTuple):
    """Ask the publisher for its batches from this number on."""

    start: int


Act: TypeAlias = Apply | Forget | Replay


class Stream:
    """Owner: the process that follows the engines."""

    def __init__(self, *, replays: bool) -> None:
        """``replays``: whether the publisher can be asked."""
        self.gaps = self.restarts = 0
        self.replaying = False
        self._replays = replays
        self._connected = False
        self._doubtful = False  # something may have been missed while there was no connection
        self._lacks: Why | None = Why.CATCHING_UP  # of what is known
        self._next: int | None = None  # None: nothing has been applied
        self._last = b""  # the payload of number `_next` - 1
        self._live = -1  # the number that was received last, beside replays
        self._held: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._compare = False  # the replay's first batch must be `_last`
        self._reached: tuple[int, bytes] | None = None  # the last batch of a life that may be over
        self._replayed = False  # the replay has sent something

    @property
    def why(self) -> Why | None:
        """Why it is not sure what the publisher's endpoint holds; None where it is."""
        if not self._connected:
            return Why.NOT_CONNECTED
        return Why.CATCHING_UP if self.replaying or self._doubtful else self._lacks

    def connected(self) -> Iterator[Act]:
        """The publisher can be heard."""
        if not self._connected:
            self._connected = True
            if self._replays:
                yield from self._ask()

    def disconnected(self) -> None:
        """It cannot be heard any more; a replay that is under way ends by itself."""
        self._connected, self._doubtful = False, self._next is not None

    def live(self, number: int, payload: bytes) -> Iterator[Act]:
        """A batch was published."""
        self._connected = True
        if self.replaying:
            self._hold(number, payload)
        else:
            yield from self._take(number, payload)

    def replayed(self, number: int, payload: bytes) -> Iterator[Act]:
        """A batch was sent again."""
        if not self.replaying:
            return
        if self._compare:
            self._compare = False
            if self._next is not None and number == self._next - 1 and payload == self._last:
                self._replayed = True
                self._recognise(number, payload)
            else:
                yield from self._ask_for_everything()
            return
        self._recognise(number, payload)
        if not self._replayed:
            self._replayed = True
            yield Forget()
            self._lacks = None if number <= FIRST else Why.REPLAY_TOO_SHORT
        elif number != self._next:
            self._lacks = Why.REPLAY_TOO_SHORT
        yield from self._apply(number, payload)

    def replay_ended(self) -> Iterator[Act]:
        """All that the publisher has was sent again."""
        if not self.replaying:
            return
        if self._compare:  # it has nothing: another life
            yield from self._ask_for_everything()
            return
        self.replaying = self._doubtful = False
        self._begins_anew(self._reached is not None)  # it has not come as far as it had before
        if not self._replayed:
            yield Forget()
            self._next, self._lacks = 0, None
        while self._held and not self.replaying:
            number, payload = self._held.popleft()
            self._held_bytes -= len(payload)
            yield from self._take(number, payload)

    def replay_failed(self) -> Iterator[Act]:
        """The publisher does not answer. (Ask again by ``retry``.)"""
        if not self.replaying:
            return
        self.replaying = self._compare = self._doubtful = False
        yield Forget()
        self._remember()
        self._next, self._lacks = None, Why.REPLAY_FAILED
        for number, payload in self._held:
            if self._next is None or number == self._next:
                if number <= self._live:
                    self._begins_anew(self._reached is not None)
                self._live = number
                yield from self._apply(number, payload)
        self._held.clear()
        self._held_bytes = 0

    def retry(self) -> Iterator[Act]:
        """Ask for everything again, if that may help."""
        may_help = self._lacks in (Why.REPLAY_FAILED, Why.UNREADABLE)
        if self._connected and self._replays and not self.replaying and may_help:
            yield from self._ask_for_everything()

    def unreadable(self) -> Iterator[Act]:
        """A batch that was to be applied could not be read."""
        yield Forget()
        self._lacks = Why.UNREADABLE

    def lose(self) -> None:
        """What this publisher has said was forgotten with what another has."""
        if self._lacks is None or self._lacks is Why.JOINED_LATE:
            self._lacks = Why.UNREADABLE if self._replays else Why.GAP

    def _take(self, number: int, payload: bytes) -> Iterator[Act]:
        seen, self._live = self._live, number
        asks = self._replays and self._lacks is not Why.REPLAY_FAILED
        if self._next is None:
            if number <= seen:
                self._begins_anew(self._reached is not None)
                seen, self._live = -1, number
            if not number:
                self._lacks = None
            elif asks:
                self._live = seen
                self._hold(number, payload)
                yield from self._ask_for_everything()
                return
            elif self._lacks is not Why.REPLAY_FAILED:
                self._lacks = Why.JOINED_LATE
        elif number < self._next:
            if number > seen:
                return  # replayed before
            self._begins_anew(True)
            self._next, self._live, self._lacks = None, -1, Why.CATCHING_UP
            yield Forget()
            yield from self._take(number, payload)
            return
        elif number > self._next:
            self.gaps += 1
            if asks:
                self._live = seen
                self._hold(number, payload)
                yield from self._ask()
                return
            yield Forget()
            self._lacks = Why.REPLAY_FAILED if self._replays else Why.GAP
        self._doubtful = False
        yield from self._apply(number, payload)

    def _remember(self) -> None:
        """Where it had come, until it is known whether it still lives."""
        if self._reached is None and self._next:
            self._reached = (self._next - 1, self._last)

    def _recognise(self, number: int, payload: bytes) -> None:
        """Whether it still lives, by a batch that it has had sent again."""
        if self._reached is not None and number >= self._reached[0]:
            self._begins_anew(number == self._reached[0] and payload != self._reached[1])

    def _begins_anew(self, anew: bool) -> None:
        self._reached = None
        if anew:
            self.restarts += 1
            self._live = -1  # its numbers begin again, too

    def _apply(self, number: int, payload: bytes) -> Iterator[Act]:
        self._next, self._last = number + 1, payload
        yield Apply(payload)

    def _ask(self) -> Iterator[Act]:
        """For what is missing, with the last batch known to compare; or for everything."""
        if not self._next:
            yield from self._ask_for_everything()
            return
        self.replaying, self._compare, self._replayed = True, True, False
        yield Replay(self._next - 1)

    def _ask_for_everything(self) -> Iterator[Act]:
        self._remember()
        self.replaying, self._compare, self._replayed = True, False, False
        yield Replay(0)

    def _hold(self, number: int, payload: bytes) -> None:
        """Keep a batch until the replay ends. Of too many the oldest go, and leave a gap."""
        self._held.append((number, payload))
        self._held_bytes += len(payload)
        while len(self._held) > MOST_HELD or self._held_bytes > MOST_HELD_BYTES:
            _, oldest = self._held.popleft()
            self._held_bytes -= len(oldest)
