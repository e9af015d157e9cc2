"""What is under way at an endpoint, as far as it follows from what was sent there: no scrape is that young.

The prefill of the requests sent to an endpoint, and their loads on each lane, are queues that shrink as time passes:
``until`` is when the last of what was sent should be done. What a scrape or the ledger knows better wins: nothing is
ahead where no prompt is left to compute; and where answers are seen and one is overdue, the wait is at least as long
again as it is overdue, so that an endpoint that has stopped answering looks the worse the longer it does.
"""

from __future__ import annotations

from typing import NamedTuple

from scorers.base import Candidate
from scorers.cost.constants import Constants
from scorers.cost.estimate import Estimate

SLACK_S = 0.5
"""How much later than expected an answer may be before it is overdue. A guess."""
MOST_AHEAD_S = 600.0
"""What is taken to be ahead at most: clocks may jump."""


class Queues:
    """One endpoint's. Owner: one model. Units: seconds of the clock that requests arrive by."""

    __slots__ = ("dearest_s", "gpu_until", "lane_until", "storage_until")

    def __init__(self) -> None:
        self.gpu_until = self.lane_until = self.storage_until = 0.0
        self.dearest_s = 0.0
        """The most that one uncached token of the queue takes."""

    def sent(self, estimate: Estimate, constants: Constants, now: float) -> None:
        """A request went there."""
        if self.gpu_until <= now:
            self.dearest_s = 0.0
        if estimate.computed_tokens:
            self.dearest_s = max(self.dearest_s, estimate.prefill_s / estimate.computed_tokens)
        self.gpu_until = within(self.gpu_until, now) + estimate.prefill_s
        loaded = estimate.cpu_tokens + estimate.storage_tokens
        if loaded:
            lane = constants.cpu
            self.lane_until = within(self.lane_until, now) + lane.fixed_s + loaded * lane.token_s
        if estimate.storage_tokens:
            lane = constants.storage
            self.storage_until = within(self.storage_until, now) + lane.fixed_s + estimate.storage_tokens * lane.token_s

    def prefill_s(self, most_s: float, now: float, *, answers_seen: bool) -> float:
        """Of what was sent there and is not computed; ``most_s`` by the tokens that are left, 0 for none."""
        if not most_s:
            return 0.0
        left_s = self.gpu_until - now
        if left_s >= 0.0:
            return min(left_s, most_s, MOST_AHEAD_S)
        overdue_s = -left_s - SLACK_S
        return min(overdue_s, MOST_AHEAD_S) if answers_seen and overdue_s > 0.0 else 0.0


def within(until: float, now: float) -> float:
    """``until``, or ``now`` if that is later, but no further than anything is taken to be ahead."""
    return min(max(until, now), now + MOST_AHEAD_S)


class Room(NamedTuple):
    """GPU memory of an endpoint, as shares of all of it."""

    token: float
    """One token."""
    used: float
    """By requests in its batch, and those that will enter it before."""
    request: float
    """By one of them."""
    freed_per_s: float
    """What requests give back as they end."""

    def wait_s(self, tokens: float) -> float:
        """Until ``tokens`` fit. Memory comes free a request at a time."""
        missing = self.used + tokens * self.token - 1.0
        if missing <= 0.0:
            return 0.0
        whole = self.request * (int(missing / self.request) + 1)
        return min(whole / self.freed_per_s, MOST_AHEAD_S)

    @property
    def tokens(self) -> float:
        """How many fit at once; below 0 where some are waiting for more than there is."""
        return (1.0 - self.used) / self.token


def room(candidate: Candidate, stay_s: float) -> Room | None:
    """That of ``candidate``; None where nothing says how much memory there is, or nothing is in use."""
    capacity = (candidate.gpu_blocks or 0) * (candidate.block_tokens or 0)
    running, usage = candidate.running, min(1.0, candidate.kv_usage)
    if capacity < 1 or running < 1 or usage * capacity < running:  # less than a token each: it cannot be
        return None
    request = usage / running
    return Room(1.0 / capacity, usage + candidate.waiting * request, request, usage / stay_s)
