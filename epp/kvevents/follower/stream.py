"""One publisher's batches in order: missing batches are requested again, and what cannot be recovered is reported.

Pure: messages in, acts out. A publisher numbers its batches from 0 (some publishers from 1), keeps the most recent
ones, and sends these again on request (``replay``). Laws:

- A batch is applied once, and after all batches before it; otherwise everything known is forgotten first.
- A number that goes back means that the publisher has restarted. It may have restarted even if the numbers go on: a
  request after a gap therefore includes the last batch that was applied, which is compared.
- ``why`` is None only if every batch ever published has been applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from epp.kvevents.orders import Incomplete

FIRST = 1
"""A replay that begins at this number or below is complete, because some publishers count from 1. If a publisher that
counts from 0 has just dropped its very first batch, the loss of that batch goes unnoticed.
"""
MOST_HELD = 10_000
"""Maximum number of live batches that may wait for a replay."""
MOST_HELD_BYTES = 16 << 20


class Apply(NamedTuple):
    """Apply the events of this batch."""

    payload: bytes


class Forget(NamedTuple):
    """Forget everything known of the publisher."""


class Replay(NamedTuple):
    """Request the publisher's batches from number ``start`` on."""

    start: int


Act: TypeAlias = Apply | Forget | Replay


class Stream:
    """The state of one publisher's stream of batches. Owner: the process that follows the engines."""

    def __init__(self, *, replays: bool) -> None:
        """``replays``: whether the publisher offers replays."""
        self.gaps = self.restarts = 0
        self.replaying = False
        self._replays = replays
        self._connected = False
        self._doubtful = False  # batches may have been missed while there was no connection
        self._incomplete: Incomplete | None = Incomplete.CATCHING_UP  # why what is known may be incomplete
        self._next: int | None = None  # None: no batch has been applied
        self._last = b""  # the payload of batch `_next` - 1
        self._live = -1  # the number of the last batch received live, not by a replay
        self._held: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._compare = False  # the replay's first batch must equal `_last`
        self._reached: tuple[int, bytes] | None = None  # the last batch before a restart that is suspected
        self._replayed = False  # the replay has sent at least one batch

    @property
    def why(self) -> Incomplete | None:
        """Why the blocks of the publisher's endpoint are not fully known; None if they are."""
        if not self._connected:
            return Incomplete.NOT_CONNECTED
        return Incomplete.CATCHING_UP if self.replaying or self._doubtful else self._incomplete

    def connected(self) -> Iterator[Act]:
        """Handle a new connection: request what was missed meanwhile."""
        if not self._connected:
            self._connected = True
            if self._replays:
                yield from self._request_replay()

    def disconnected(self) -> None:
        """Handle a lost connection. A replay that is under way ends by itself."""
        self._connected, self._doubtful = False, self._next is not None

    def live(self, number: int, payload: bytes) -> Iterator[Act]:
        """Handle a batch that was published just now."""
        self._connected = True
        if self.replaying:
            self._hold(number, payload)
        else:
            yield from self._take(number, payload)

    def replayed(self, number: int, payload: bytes) -> Iterator[Act]:
        """Handle a batch that was sent again in a replay."""
        if not self.replaying:
            return
        if self._compare:
            self._compare = False
            if self._next is not None and number == self._next - 1 and payload == self._last:
                self._replayed = True
                self._recognise(number, payload)
            else:
                yield from self._request_all()
            return
        self._recognise(number, payload)
        if not self._replayed:
            self._replayed = True
            yield Forget()
            self._incomplete = None if number <= FIRST else Incomplete.REPLAY_TOO_SHORT
        elif number != self._next:
            self._incomplete = Incomplete.REPLAY_TOO_SHORT
        yield from self._apply(number, payload)

    def replay_ended(self) -> Iterator[Act]:
        """Handle the end of a replay: the publisher has sent all that it has."""
        if not self.replaying:
            return
        if self._compare:  # its buffer is empty, so it has restarted
            yield from self._request_all()
            return
        self.replaying = self._doubtful = False
        self._restarted(self._reached is not None)  # it has not reached its former number
        if not self._replayed:
            yield Forget()
            self._next, self._incomplete = 0, None
        while self._held and not self.replaying:
            number, payload = self._held.popleft()
            self._held_bytes -= len(payload)
            yield from self._take(number, payload)

    def replay_failed(self) -> Iterator[Act]:
        """Handle a replay that failed or timed out; ``retry`` requests it again."""
        if not self.replaying:
            return
        self.replaying = self._compare = self._doubtful = False
        yield Forget()
        self._remember()
        self._next, self._incomplete = None, Incomplete.REPLAY_FAILED
        for number, payload in self._held:
            if self._next is None or number == self._next:
                if number <= self._live:
                    self._restarted(self._reached is not None)
                self._live = number
                yield from self._apply(number, payload)
        self._held.clear()
        self._held_bytes = 0

    def retry(self) -> Iterator[Act]:
        """Request all batches again, if that may help."""
        may_help = self._incomplete in (Incomplete.REPLAY_FAILED, Incomplete.UNREADABLE)
        if self._connected and self._replays and not self.replaying and may_help:
            yield from self._request_all()

    def unreadable(self) -> Iterator[Act]:
        """Handle a batch that could not be decoded."""
        yield Forget()
        self._incomplete = Incomplete.UNREADABLE

    def lose(self) -> None:
        """Mark the stream as incomplete: because of another publisher, all blocks of the endpoint were forgotten."""
        if self._incomplete is None or self._incomplete is Incomplete.JOINED_LATE:
            self._incomplete = Incomplete.UNREADABLE if self._replays else Incomplete.GAP

    def _take(self, number: int, payload: bytes) -> Iterator[Act]:
        seen, self._live = self._live, number
        can_replay = self._replays and self._incomplete is not Incomplete.REPLAY_FAILED
        if self._next is None:
            if number <= seen:
                self._restarted(self._reached is not None)
                seen, self._live = -1, number
            if not number:
                self._incomplete = None
            elif can_replay:
                self._live = seen
                self._hold(number, payload)
                yield from self._request_all()
                return
            elif self._incomplete is not Incomplete.REPLAY_FAILED:
                self._incomplete = Incomplete.JOINED_LATE
        elif number < self._next:
            if number > seen:
                return  # already applied in a replay
            self._restarted(True)
            self._next, self._live, self._incomplete = None, -1, Incomplete.CATCHING_UP
            yield Forget()
            yield from self._take(number, payload)
            return
        elif number > self._next:
            self.gaps += 1
            if can_replay:
                self._live = seen
                self._hold(number, payload)
                yield from self._request_replay()
                return
            yield Forget()
            self._incomplete = Incomplete.REPLAY_FAILED if self._replays else Incomplete.GAP
        self._doubtful = False
        yield from self._apply(number, payload)

    def _remember(self) -> None:
        """Keep the last applied batch until it is clear whether the publisher has restarted."""
        if self._reached is None and self._next:
            self._reached = (self._next - 1, self._last)

    def _recognise(self, number: int, payload: bytes) -> None:
        """Decide, by a batch sent again, whether the publisher has restarted."""
        if self._reached is not None and number >= self._reached[0]:
            self._restarted(number == self._reached[0] and payload != self._reached[1])

    def _restarted(self, anew: bool) -> None:
        self._reached = None
        if anew:
            self.restarts += 1
            self._live = -1  # the numbers begin again, too

    def _apply(self, number: int, payload: bytes) -> Iterator[Act]:
        self._next, self._last = number + 1, payload
        yield Apply(payload)

    def _request_replay(self) -> Iterator[Act]:
        """Request what is missing, and the last applied batch for comparison; without one, request everything."""
        if not self._next:
            yield from self._request_all()
            return
        self.replaying, self._compare, self._replayed = True, True, False
        yield Replay(self._next - 1)

    def _request_all(self) -> Iterator[Act]:
        self._remember()
        self.replaying, self._compare, self._replayed = True, False, False
        yield Replay(0)

    def _hold(self, number: int, payload: bytes) -> None:
        """Keep a live batch until the replay ends. Beyond the limits the oldest are dropped, which leaves a gap."""
        self._held.append((number, payload))
        self._held_bytes += len(payload)
        while len(self._held) > MOST_HELD or self._held_bytes > MOST_HELD_BYTES:
            _, oldest = self._held.popleft()
            self._held_bytes -= len(oldest)
