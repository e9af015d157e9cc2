"""The work under way at an endpoint, derived from what was sent there, since no scrape is recent enough.

The prefill of the requests sent to an endpoint, and their loads on each lane, are queues that shrink as time passes:
``until`` is when the last of what was sent should be done. Better knowledge from a scrape or the ledger takes
precedence. Nothing is ahead if no prompt is left to compute. If answers are seen and one is overdue, the wait is
assumed to last at least as long again as it is overdue, so that an endpoint that has stopped answering looks worse the
longer it does not answer.
"""

from __future__ import annotations

from typing import NamedTuple

from scorers.base import Candidate
from scorers.cost.constants import Constants
from scorers.cost.estimate import Estimate

SLACK_S = 0.5
"""How much later than expected an answer may be before it is overdue. A guess."""
MOST_AHEAD_S = 600.0
"""The most time that is assumed to be ahead, since clocks may jump."""


class Queues:
    """The queues of one endpoint. Owner: one model. Units: seconds on the clock that times arrivals."""

    __slots__ = ("dearest_s", "gpu_until", "lane_until", "storage_until")

    def __init__(self) -> None:
        self.gpu_until = self.lane_until = self.storage_until = 0.0
        self.dearest_s = 0.0
        """The most time that one uncached token of the queue takes."""

    def sent(self, estimate: Estimate, constants: Constants, now: float) -> None:
        """Add a request that was sent to the endpoint."""
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
        """Return the prefill time of what was sent there and is not computed yet.

        ``most_s`` is the most that the tokens left to compute can take; 0 if there are none.
        """
        if not most_s:
            return 0.0
        left_s = self.gpu_until - now
        if left_s >= 0.0:
            return min(left_s, most_s, MOST_AHEAD_S)
        overdue_s = -left_s - SLACK_S
        return min(overdue_s, MOST_AHEAD_S) if answers_seen and overdue_s > 0.0 else 0.0


def within(until: float, now: float) -> float:
    """Return the later of ``until`` and ``now``, but at most ``MOST_AHEAD_S`` from now."""
    return min(max(until, now), now + MOST_AHEAD_S)


class Room(NamedTuple):
    """An endpoint's GPU memory and its use, as shares of the total."""

    token: float
    """The share of one token."""
    used: float
    """The share of the requests in the batch, and of those that will enter it before."""
    request: float
    """The share of one of these requests."""
    freed_per_s: float
    """The share that ending requests free per second."""

    def wait_s(self, tokens: float) -> float:
        """Return the time until ``tokens`` fit. Memory is freed a request at a time."""
        missing = self.used + tokens * self.token - 1.0
        if missing <= 0.0:
            return 0.0
        whole = self.request * (int(missing / self.request) + 1)
        return min(whole / self.freed_per_s, MOST_AHEAD_S)

    @property
    def tokens(self) -> float:
        """How many tokens fit at once; below 0 if requests wait for more than there is."""
        return (1.0 - self.used) / self.token


def room(candidate: Candidate, stay_s: float) -> Room | None:
    """Return the room of ``candidate``; None if its memory is unknown, or none of it is in use."""
    capacity = (candidate.gpu_blocks or 0) * (candidate.block_tokens or 0)
    running, usage = candidate.running, min(1.0, candidate.kv_usage)
    if capacity < 1 or running < 1 or usage * capacity < running:  # less than a token per request is impossible
        return None
    request = usage / running
    return Room(1.0 / capacity, usage + candidate.waiting * request, request, usage / stay_s)
