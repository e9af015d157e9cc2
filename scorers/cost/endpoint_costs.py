"""Endpoints as the cost model sees them: their kind, how they differ from it, and the work under way."""

from __future__ import annotations

from math import inf

from msgspec import structs

from scorers.base import Candidate, Tier
from scorers.cost.constants import MOST_REQUESTS, Constants, Lane
from scorers.cost.estimate import ALONE, Crowd
from scorers.cost.learning import Deviation, Learner
from scorers.cost.queues import MOST_AHEAD_S, Queues, Room, room

HELD_UP = 0.5
"""The share of a second without tokens that a running request is charged for: its end is delayed, but no
first token."""
BEHIND = 1.0
"""How many requests will come to wait behind a request for each that waits before it: a queue lasts, and each second of
prefill is waited for by all of them. Source: ``tierwise simulate``, ladder-16k, where endpoints are overloaded."""
DISPLACED = 1.0
"""How often the cost of computing is added, because what is computed displaces as much from full caches, and that has
to be computed again."""
MEMORY_WEIGHT, MEMORY_POWER = 6.0, 4
"""How many requests wait for the memory of an endpoint that is full, and how fast that number falls with free memory.
Source of all but the first: chosen on simulated fleets of 8 endpoints (high-cache and storage-30k) for the mean time to
first token, such that neither that of low-cache nor the end of requests becomes worse."""

UNSEEN_S, UNSEEN = 300.0, 50
"""After so long, and so many observations per endpoint on average, an endpoint that differs and was not observed is
tried again. Otherwise a slower endpoint would get little to do, and would be considered slow forever. A guess."""


class Kind:
    """Endpoints that are assumed to be alike, until one turns out to differ. Owner: one model."""

    __slots__ = ("constants", "has_load_time", "learner")

    def __init__(self, start: Constants) -> None:
        self.learner = Learner(start)
        self.constants = start
        """The constants in use."""
        self.has_load_time = False
        """Whether an engine of this kind has reported its load times."""

    def publish(self) -> None:
        """Put the learned constants into use."""
        self.constants = self.learner.constants

    def start_from_report(self, candidate: Candidate) -> bool:
        """Start from the load time that an engine reports, and return whether no further report is needed."""
        report = candidate.tiers.get(Tier.CPU)
        if report is None or report.load_token_s is None:
            return False
        self.has_load_time = self.learner.start_load_at(report.load_token_s)
        self.publish()
        return self.has_load_time


class EndpointCosts:
    """One endpoint, and what was computed for the candidate that it is now. Owner: one model."""

    __slots__ = (
        "address", "awaits_response", "candidate", "chunk_tokens", "computing", "constants", "crowd", "foreign_s",
        "in_use", "kind", "loading", "memory_token_s", "most_s", "observed_count", "observed_s", "plain_s", "queues",
        "room", "room_tokens", "unstreamed_tokens", "version", "weight",
    )  # fmt: skip

    def __init__(self, address: str, kind: Kind) -> None:
        self.address = address
        self.kind = kind
        self.computing = Deviation()
        self.loading = Deviation()
        self.queues = Queues()
        self.observed_s = 0.0
        self.observed_count = 0
        """When the endpoint was last observed with a usable result: the time, and the count of all observations."""
        self.unstreamed_tokens = 0
        """Upper bound of the uncached tokens of requests under way without a streamed response: the end of their
        prefill cannot be seen."""
        self.candidate: Candidate | None = None
        """The candidate that the following fields were computed for."""
        self.version = -1
        self.constants = kind.constants
        """The constants of this endpoint."""
        self.plain_s = 0.0
        """The part of the price that is the same for every request."""
        self.most_s = 0.0
        """The most that the prompts in flight can take."""
        self.awaits_response = False
        """Whether any prompt is under way whose response should be seen to begin."""
        self.foreign_s = 0.0
        """The time for waiting requests that this picker did not send."""
        self.chunk_tokens = 1
        """The size of the pieces in which CPU memory is loaded; 1 if the engine does not report it."""
        self.crowd = ALONE
        self.memory_token_s = self.in_use = 0.0
        """The same values as in ``crowd``."""
        self.weight = 1.0
        """The cost of a second of prefill, including its cost to the crowd."""
        self.room: Room | None = None
        self.room_tokens = inf
        """The number of tokens that fit into the endpoint's memory at once."""

    @property
    def differs(self) -> bool:
        """Whether the endpoint is slower or faster than its kind."""
        return self.computing.factor != 1.0 or self.loading.factor != 1.0

    def retry(self, now: float, observations: int, endpoints: int) -> None:
        """Doubt the endpoint's factors, if it was not observed for long."""
        if abs(now - self.observed_s) > UNSEEN_S and observations - self.observed_count > UNSEEN * endpoints:
            self.observed_s, self.observed_count = now, observations
            self.computing.doubt()
            self.loading.doubt()
            self.version = -1

    def follow(self, candidate: Candidate, version: int, mean_prefill_s: float, others_weight: float) -> None:
        """Compute what is the same for every request at this endpoint.

        It stays valid while ``candidate`` and the constants (``version``) do not change.
        """
        if self.version != version:
            self.version = version
            self.constants = own(self.kind.constants, self.computing.factor, self.loading.factor)
        constants, in_flight_tokens = self.constants, candidate.in_flight_tokens
        running, waiting = min(candidate.running, MOST_REQUESTS), min(candidate.waiting, MOST_REQUESTS)
        self.candidate = candidate
        self.plain_s = constants.fixed_s + running * constants.decode_s
        self.most_s = in_flight_tokens * self.queues.dearest_s
        self.unstreamed_tokens = min(self.unstreamed_tokens, in_flight_tokens)
        self.awaits_response = in_flight_tokens > self.unstreamed_tokens
        foreign = waiting + running - candidate.in_flight if waiting else 0
        self.foreign_s = min(min(waiting, foreign) * mean_prefill_s, MOST_AHEAD_S) if foreign > 0 else 0.0
        report = candidate.tiers.get(Tier.CPU) if candidate.tiers else None
        self.chunk_tokens = (report.block_tokens if report is not None else None) or 1
        self.room = room(candidate, constants.stay_s)
        self.room_tokens = inf if self.room is None else self.room.tokens
        in_use, memory_token_s = min(1.0, candidate.kv_usage), 0.0
        if self.room is not None:
            they_wait = MEMORY_WEIGHT * float(in_use**MEMORY_POWER)
            memory_token_s = others_weight * they_wait * constants.stay_s * self.room.token
        self.crowd = Crowd(others_weight * (DISPLACED + HELD_UP * running + BEHIND * waiting), memory_token_s, in_use)
        self.memory_token_s, self.in_use, self.weight = memory_token_s, in_use, 1.0 + self.crowd.held_up


def own(constants: Constants, computing: float, loading: float) -> Constants:
    """Return the constants of an endpoint with these factors; the same object if both are 1."""
    if computing == 1.0 and loading == 1.0:
        return constants
    cpu, storage = constants.cpu, constants.storage
    return structs.replace(
        constants,
        fixed_s=constants.fixed_s * computing,
        token_s=constants.token_s * computing,
        pair_s=constants.pair_s * computing,
        decode_s=constants.decode_s * computing,
        cpu=Lane(cpu.fixed_s * loading, cpu.token_s * loading),
        storage=Lane(storage.fixed_s * loading, storage.token_s * loading),
    )
