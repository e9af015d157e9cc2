"""Endpoints as the cost model knows them: of a kind, with a difference of their own, and with what is under way."""

from __future__ import annotations

from math import inf

from msgspec import structs

from scorers.base import Candidate, Tier
from scorers.cost.constants import MOST_REQUESTS, Constants, Lane
from scorers.cost.estimate import ALONE, Crowd
from scorers.cost.learning import Deviation, Learner
from scorers.cost.standing import MOST_AHEAD_S, Queues, Room, room

HELD_UP = 0.5
"""What of a second without tokens a running request is charged for: it delays no first token, and yet an end."""
BEHIND = 1.0
"""How many will come to wait behind a request for each that waits before it: a queue lasts, and each second of prefill
is waited for by all of them. Source: ``tierwise simulate``, ladder-16k, where endpoints are overloaded."""
DISPLACED = 1.0
"""What is computed anew displaces as much in caches that are full, and that will be computed again: as if it were
computed so many times more."""
MEMORY_WEIGHT, MEMORY_POWER = 6.0, 4
"""How many requests wait for the memory of an endpoint where all is in use, and how fast that falls with what is not.
Source of all but the first: chosen on simulated fleets of 8 endpoints (high-cache and storage-30k): mean time to first
token, without that of low-cache or the end of requests becoming worse."""

UNSEEN_S, UNSEEN = 300.0, 50
"""After so long, and so many observations of each endpoint on average, one that differs and was not among them is
tried again: whoever is slower gets little to do, and would be taken to be slower for ever. A guess."""


class Kind:
    """Endpoints that are taken to be alike, until one shows otherwise. Owner: one model."""

    __slots__ = ("constants", "has_heard", "learner")

    def __init__(self, start: Constants) -> None:
        self.learner = Learner(start)
        self.constants = start
        """In use."""
        self.has_heard = False
        """Whether an engine of it has said what its loads take."""

    def publish(self) -> None:
        """Use what was learned."""
        self.constants = self.learner.constants

    def hear(self, candidate: Candidate) -> bool:
        """Begin where an engine says what its loads from CPU memory took: the first that does; whether that was now."""
        report = candidate.tiers.get(Tier.CPU)
        if report is None or report.load_token_s is None:
            return False
        self.has_heard = self.learner.load_begins_with(report.load_token_s)
        self.publish()
        return self.has_heard


class Place:
    """One endpoint, and what was computed of the candidate that it is now. Owner: one model."""

    __slots__ = (
        "address", "awaits", "candidate", "chunk_tokens", "computing", "constants", "crowd", "in_use", "kind",
        "loading", "memory_token_s", "most_s", "plain_s", "queues", "room", "room_tokens", "seen", "seen_at",
        "silent_tokens", "strangers_s", "version", "weight",
    )  # fmt: skip

    def __init__(self, address: str, kind: Kind) -> None:
        self.address = address
        self.kind = kind
        self.computing = Deviation()
        self.loading = Deviation()
        self.queues = Queues()
        self.seen_at = 0.0
        self.seen = 0
        """When a request was last observed that says something of it: the time, and the count of all observations."""
        self.silent_tokens = 0
        """Uncached tokens of requests under way that are answered as a whole, at most: when they were computed, nobody
        sees."""
        self.candidate: Candidate | None = None
        """What the following were computed of."""
        self.version = -1
        self.constants = kind.constants
        """Its own."""
        self.plain_s = 0.0
        """Of every request."""
        self.most_s = 0.0
        """What the prompts in flight can take at most."""
        self.awaits = False
        """Whether any prompt is under way whose answer should be seen to begin."""
        self.strangers_s = 0.0
        """What requests that are not ours and wait will take."""
        self.chunk_tokens = 1
        """In which pieces CPU memory is loaded; 1 where the engine does not say."""
        self.crowd = ALONE
        self.memory_token_s = self.in_use = 0.0
        """As the crowd has them."""
        self.weight = 1.0
        """What a second of prefill costs, those of the crowd included."""
        self.room: Room | None = None
        self.room_tokens = inf
        """What fits into its memory at once."""

    @property
    def differs(self) -> bool:
        """Whether it is slower or faster than its kind."""
        return self.computing.factor != 1.0 or self.loading.factor != 1.0

    def look_again(self, now: float, observations: int, places: int) -> None:
        """Doubt what is known of it, if it was not seen for long."""
        if abs(now - self.seen_at) > UNSEEN_S and observations - self.seen > UNSEEN * places:
            self.seen_at, self.seen = now, observations
            self.computing.doubt()
            self.loading.doubt()
            self.version = -1

    def follow(self, candidate: Candidate, version: int, mean_prefill_s: float, others_weight: float) -> None:
        """Compute what holds for every request while the candidate and the constants (``version``) stay as they are."""
        if self.version != version:
            self.version = version
            self.constants = own(self.kind.constants, self.computing.factor, self.loading.factor)
        constants, in_flight_tokens = self.constants, candidate.in_flight_tokens
        running, waiting = min(candidate.running, MOST_REQUESTS), min(candidate.waiting, MOST_REQUESTS)
        self.candidate = candidate
        self.plain_s = constants.fixed_s + running * constants.decode_s
        self.most_s = in_flight_tokens * self.queues.dearest_s
        self.silent_tokens = min(self.silent_tokens, in_flight_tokens)
        self.awaits = in_flight_tokens > self.silent_tokens
        foreign = waiting + running - candidate.in_flight if waiting else 0
        self.strangers_s = min(min(waiting, foreign) * mean_prefill_s, MOST_AHEAD_S) if foreign > 0 else 0.0
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
    """Those of an endpoint that is so many times as slow as its kind; the same object for one that is not."""
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
