"""One endpoint that is followed: its publishers, one per data-parallel rank, and the blocks they have announced."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from epp.kvevents.follower.columns import TIERS
from epp.kvevents.follower.decoding import Unreadable, decode
from epp.kvevents.follower.residents import Residents
from epp.kvevents.follower.runs import Runs
from epp.kvevents.follower.stream import Act, Apply, Replay, Stream
from epp.kvevents.follower.tally import Tally
from epp.kvevents.orders import Incomplete, SourceStatus

ALL_TIERS = (1 << TIERS) - 1


class Source:
    """The streams and blocks of one endpoint. Owner: the process that follows the engines."""

    def __init__(self, number: int, address: str, runs: Runs, tally: Tally, note: Callable[[str, str], None]) -> None:
        self.number = number
        self.address = address
        self.streams: list[Stream] = []
        self.residents = Residents(runs, number, tally, note)
        self._tally = tally
        self._reported: SourceStatus | None = None

    def do(self, stream: Stream, acts: Iterable[Act]) -> Replay | None:
        """Carry out the acts of ``stream``; return the last replay among them, which is the one to request."""
        replay: Replay | None = None
        for act in acts:
            if isinstance(act, Apply):
                self._apply(stream, act.payload)
            elif isinstance(act, Replay):
                replay = act
            else:
                self.forget(stream)
        return replay

    def forget(self, stream: Stream | None = None) -> None:
        """Forget all blocks of the endpoint, and mark its streams except ``stream`` as incomplete."""
        self.residents.forget()
        for other in self.streams:
            if other is not stream:
                other.lose()

    def status(self, *, with_tokens: bool) -> SourceStatus | None:
        """Return the endpoint's status if it has changed, else None.

        Token counts change all the time: without ``with_tokens``, a change of them alone is not reported.
        """
        why = next((stream.why for stream in self.streams if stream.why is not None), None)
        if not self.streams:
            why = Incomplete.NOT_CONNECTED
        known = (
            ALL_TIERS
            if why is None
            else 0
            if why in (Incomplete.NOT_CONNECTED, Incomplete.CATCHING_UP)
            else self.residents.known
        )
        status = SourceStatus(
            self.number,
            "" if why is None else why.value,
            known,
            tuple(self.residents.tokens),
            sum([stream.gaps for stream in self.streams]),
            sum([stream.restarts for stream in self.streams]),
        )
        before = self._reported
        if before == status or (
            before is not None and not with_tokens and (before.why, before.known) == (status.why, known)
        ):
            return None
        self._reported = status
        return status

    def _apply(self, stream: Stream, payload: bytes) -> None:
        try:
            batch = decode(payload)
        except Unreadable:
            self._tally.unreadable += 1
            for _ in stream.unreadable():
                self.forget(stream)
            return
        self._tally.batches += 1
        self._tally.unknown_events += batch.unknown
        self.residents.apply(batch.events, batch.rank)
