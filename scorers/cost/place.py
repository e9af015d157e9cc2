"""Endpoints as the cost model knows them: of a kind, with a difference of their own, and with what is under way."""

from __future__ import annotations

from math import inf

from msgspec import structs

from scorers.base import Candidate
from scorers.cost.constants import Constants, Lane
from scorers.cost.estimate import ALONE, Crowd
from scorers.cost.learning import Deviation, Learner, Sample
from scorers.cost.standing import Queues, Room, room

MEMORY_WEIGHT = 2.0
"""How many requests wait for the memory of an endpoint whose memory is all in use. A guess."""
PUBLISHED_EVERY = 8
"""Observations after which new constants come into use: until then, what was computed of a candidate holds."""


class Kind:
    """Endpoints that are taken to be alike, until one shows otherwise. Owner: one model."""

    __slots__ = ("constants", "learner", "version")

    def __init__(self, start: Constants) -> None:
        self.learner = Learner(start)
        self.constants = start
        """In use."""
        self.version = 0
        """Of those; it counts up."""

    def observe(self, sample: Sample) -> tuple[float, bool] | None:
        """Learn; answers what ``Learner.observe`` does."""
        said = self.learner.observe(sample)
        if (self.learner.used + self.learner.refused) % PUBLISHED_EVERY == 0:
            self.constants = self.learner.constants
            self.version += 1
        return said


class Place:
    """One endpoint, and what was computed of the candidate that it is now. Owner: one model."""

    __slots__ = (
        "address", "candidate", "computing", "constants", "crowd", "kind", "loading", "most_s", "plain_s", "queues",
        "room", "room_tokens", "strangers_s", "version",
    )  # fmt: skip

    def __init__(self, address: str, kind: Kind) -> None:
        self.address = address
        self.kind = kind
        self.computing = Deviation()
        self.loading = Deviation()
        self.queues = Queues()
        self.candidate: Candidate | None = None
        """What the following were computed of."""
        self.version = -1
        self.constants = kind.constants
        """Its own."""
        self.plain_s = 0.0
        """Of every request."""
        self.most_s = 0.0
        """What the prompts in flight can take at most."""
        self.strangers_s = 0.0
        """What requests that are not ours and wait will take."""
        self.crowd = ALONE
        self.room: Room | None = None
        self.room_tokens = inf
        """What fits into its memory at once."""

    def follow(self, candidate: Candidate, mean_prefill_s: float, others_weight: float) -> None:
        """Compute what holds for every request while the candidate and the constants stay as they are."""
        kind = self.kind
        if self.version != kind.version:
            self.version = kind.version
            self.constants = own(kind.constants, self.computing.factor, self.loading.factor)
        constants, waiting = self.constants, candidate.waiting
        self.candidate = candidate
        self.plain_s = constants.fixed_s + candidate.running * constants.decode_s
        self.most_s = candidate.in_flight_tokens * self.queues.dearest_s
        foreign = waiting + candidate.running - candidate.in_flight if waiting else 0
        self.strangers_s = min(waiting, foreign) * mean_prefill_s if foreign > 0 else 0.0
        self.room = room(candidate, constants.stay_s)
        self.room_tokens = inf if self.room is None else self.room.tokens
        memory_token_s = 0.0
        if self.room is not None:
            memory_token_s = others_weight * MEMORY_WEIGHT * candidate.kv_usage * constants.stay_s * self.room.token
        self.crowd = Crowd(others_weight * candidate.running, memory_token_s, min(1.0, candidate.kv_usage))


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
