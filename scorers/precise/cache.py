"""What endpoints hold as their engines tell it, for the producers that ask: the index, and how far it can be believed.

Whoever follows the engines (a *feed*) is told of endpoints, and says of each what it holds and whether that is all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import msgspec

from scorers.base import Candidate, Mode, Prompt, Request, Slot, Tier
from scorers.precise.index import BYTES_PER_TOKEN, TIERS, PreciseIndex
from scorers.precise.speculation import Speculations

_OF_TOKENS = b"\x06\0\0\0tokens"
"""What identities of prompts begin with that were sent as token ids."""
FULL = 0.95
"""A tier whose known blocks fill so much of it holds next to nothing else. A guess."""
NOT_STARTED = "not started"
"""Why nothing is known of an endpoint that nobody has spoken of yet."""


class Feed(Protocol):
    """Who follows the engines."""

    def follow(self, source: int, candidate: Candidate) -> None:
        """Say from now on what ``candidate`` holds, as ``source``."""

    def leave(self, source: int) -> None:
        """Say no more of it; when nothing of it is held any more, ``PreciseCache.left``."""


@dataclass(slots=True)
class Told:
    """One endpoint, as far as its engine tells."""

    source: int
    slot: Slot
    address: str
    why: str = NOT_STARTED
    """Why it is not sure what it holds; empty where it is."""
    known: int = 0
    """Of ``TIERS``, one bit each: those in which everything is known."""
    tokens: tuple[int, ...] = (0, 0, 0)
    gaps: int = 0
    restarts: int = 0
    capacity: tuple[int, ...] = (0, 0, 0)
    """Of each tier, as the engine reports it; 0 where it does not."""
    block_tokens: int | None = None
    """Of its GPU memory's blocks, as the engine reports it."""
    hears: bool = False
    """Whether everything that is published now is followed."""

    @property
    def sure(self) -> int:
        """The tiers that are known, one bit each: what was told in full, and what is full of what was told."""
        full = 0
        if self.hears:
            for bit, (held, capacity) in enumerate(zip(self.tokens, self.capacity, strict=True)):
                full |= (capacity > 0 and held >= FULL * capacity) << bit
        return self.known | full


class Found(msgspec.Struct, frozen=True):
    """What is known of a request's prompts."""

    total_tokens: int
    """In full blocks."""
    held: Mapping[Tier, Mapping[Slot, int]]
    """Contiguous tokens, of endpoints whose tier is known."""


class PreciseCache:
    """A listener of the pool. Sources have small numbers, which are positions in bit masks; a number is used again when
    nothing is held under it any more. Owner: the event loop."""

    def __init__(
        self,
        *,
        block_tokens: int = 16,
        speculate_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        secret: bytes | None = None,
    ) -> None:
        """``block_tokens`` is what blocks are taken for until an engine says; ``speculate_s`` how long a pick counts
        as if its prompt were held already, None for not at all."""
        self.index = PreciseIndex(secret)
        self.speculation = Speculations(speculate_s, secret) if speculate_s is not None else None
        self.fallbacks: Counter[str] = Counter()
        """Picks whose endpoint was not known precisely, by the reason."""
        self.feed: Feed | None = None
        self.clock = clock
        self._block_tokens = block_tokens
        self._told: dict[Slot, Told] = {}
        self._by_source: dict[int, Told] = {}
        self._free: list[int] = []
        self._next = 0
        self._adapters: frozenset[str] = frozenset()
        self._modes: dict[Tier, dict[Slot, Mode]] = {tier: {} for tier in TIERS}

    # The pool's endpoints

    def endpoint_added(self, candidate: Candidate) -> None:
        """Have a new endpoint followed."""
        self.endpoint_removed(candidate.slot, "")  # whoever had the slot before
        if self._free:
            source = self._free.pop()
        else:
            source, self._next = self._next, self._next + 1
        told = self._told[candidate.slot] = Told(source, candidate.slot, candidate.address)
        self._by_source[source] = told
        self.engine_reported(candidate)
        if self.feed is not None:
            self.feed.follow(source, candidate)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Forget an endpoint; what its source still holds counts for nobody."""
        told = self._told.pop(slot, None)
        if told is None:
            return
        del self._by_source[told.source]
        self._believe()
        if self.speculation is not None:
            self.speculation.forget(slot)
        if self.feed is not None:
            self.feed.leave(told.source)
        else:
            self._free.append(told.source)

    def engine_reported(self, candidate: Candidate) -> None:
        """Follow how much the endpoint's tiers can hold."""
        told = self._told.get(candidate.slot)
        if told is None:
            return
        gpu = (candidate.gpu_blocks or 0) * (candidate.block_tokens or 0)
        reports = [candidate.tiers.get(tier) for tier in TIERS]
        of_tiers = [(report.capacity_tokens or 0) if report is not None else 0 for report in reports]
        told.block_tokens = candidate.block_tokens
        before = told.sure
        told.capacity = (gpu or of_tiers[0], *of_tiers[1:])
        if told.sure != before:
            self._believe()

    # What the feed says

    def fares(
        self,
        source: int,
        why: str,
        known: int,
        tokens: Sequence[int],
        gaps: int = 0,
        restarts: int = 0,
        *,
        hears: bool = True,
    ) -> None:
        """How the endpoint of ``source`` fares; ``hears``: nothing that is published now is missed."""
        told = self._by_source.get(source)
        if told is None:
            return
        before = told.sure
        told.why, told.known, told.tokens, told.gaps, told.restarts = why, known, tuple(tokens), gaps, restarts
        told.hears = hears
        if told.sure != before:
            self._believe()

    def doubt(self, why: str) -> None:
        """Nobody says anything any more."""
        for told in self._told.values():
            told.known, told.why, told.hears = 0, why, False
        self._believe()

    def left(self, source: int) -> None:
        """Nothing is held by ``source`` any more."""
        if source not in self._by_source:
            self._free.append(source)

    def adapter(self, name: str) -> None:
        """``name`` is a LoRA adapter of some engine."""
        self._adapters |= {name}

    def begin(self, feed: Feed, candidates: Sequence[Candidate], secret: bytes, why: str = "") -> Iterator[None]:
        """Forget everything that was told, and have ``candidates`` followed by ``feed``, whose digests are made with
        ``secret``. To be iterated (``PreciseIndex.clear``)."""
        rubble = self.index.clear(secret)
        self.feed = None
        self._told.clear()
        self._by_source.clear()
        self._free.clear()
        self._next = 0
        self.feed = feed
        for candidate in candidates:
            self.endpoint_added(candidate)
            self._told[candidate.slot].why = why or NOT_STARTED
        self._believe()
        return rubble

    # What producers ask

    def told(self, slot: Slot) -> Told | None:
        """How an endpoint fares; None for an unknown one."""
        return self._told.get(slot)

    def everyone(self) -> list[Told]:
        """All endpoints."""
        return list(self._told.values())

    def modes(self, tier: Tier) -> dict[Slot, Mode]:
        """``Mode.PRECISE`` for each endpoint whose ``tier`` is known; nobody may change it."""
        return self._modes[tier]

    def find(self, prompts: Sequence[Prompt]) -> Found:
        """What is held of ``prompts``, which are token ids, and would be a hit: the last token, from which an engine
        goes on, is always computed, so a block that ends with it is none."""
        sizes = self.index.block_sizes
        block_tokens = min(sizes) if sizes else self._block_tokens
        held: dict[Tier, dict[Slot, int]] = {tier: {} for tier in TIERS}
        total = 0
        for prompt in prompts:
            usable = usable_tokens(prompt)
            total += usable // block_tokens * block_tokens
            match = self.index.match(self._named(prompt.identity), prompt.data, usable)
            for bit, tier in enumerate(TIERS):
                of_tier, known = held[tier], self._modes[tier]
                for source, tokens in match.held[bit].items():
                    told = self._by_source.get(source)
                    if told is not None and told.slot in known:
                        of_tier[told.slot] = of_tier.get(told.slot, 0) + tokens
        if self.speculation is not None and len(self.speculation):
            self._speculate(prompts, held[Tier.GPU])
        return Found(total, held)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note why the endpoint was not known, or that it will hold the prompts in a moment."""
        told = self._told.get(candidate.slot)
        prompts = token_prompts(request)
        if prompts is None:
            self.fallbacks["no tokens"] += 1
        elif told is None or not told.sure & 1:
            self.fallbacks[told.why if told is not None else NOT_STARTED] += 1
        elif self.speculation is not None:
            now = self.clock()
            for prompt in prompts:
                self.speculation.add(prompt, candidate.slot, told.block_tokens or self._block_tokens, now)

    def _speculate(self, prompts: Sequence[Prompt], held: dict[Slot, int]) -> None:
        if self.speculation is None:
            return
        soon: Counter[Slot] = Counter()
        now = self.clock()
        for prompt in prompts:
            soon.update(self.speculation.held(prompt, usable_tokens(prompt), now))
        known = self._modes[Tier.GPU]
        for slot, tokens in soon.items():
            if slot in known and tokens > held.get(slot, 0):
                held[slot] = tokens

    def _named(self, identity: bytes) -> bytes:
        """As events name it: an adapter by its name, every other model by none."""
        return renamed(identity, self._adapters)

    def _believe(self) -> None:
        self._modes = {
            tier: {slot: Mode.PRECISE for slot, told in self._told.items() if told.sure >> bit & 1}
            for bit, tier in enumerate(TIERS)
        }


def usable_tokens(prompt: Prompt) -> int:
    """How much of a prompt of token ids may be a hit."""
    return max(0, len(prompt.data) // BYTES_PER_TOKEN - 1)


def token_prompts(request: Request) -> Sequence[Prompt] | None:
    """The request's prompts as token ids; None where nobody knows them."""
    if request.tokens is not None:
        return request.tokens
    sent = request.prompts
    return sent if sent and all(prompt.identity.startswith(_OF_TOKENS) for prompt in sent) else None


@lru_cache(maxsize=4096)
def renamed(identity: bytes, adapters: frozenset[str] = frozenset()) -> bytes:
    """An identity of token ids (its kind, model and salt, each after its length in four bytes) with no model, unless
    that is one of ``adapters``."""
    begin = 4 + int.from_bytes(identity[:4], "little")
    end = begin + 4 + int.from_bytes(identity[begin : begin + 4], "little")
    if identity[begin + 4 : end].decode(errors="surrogatepass") in adapters:
        return identity
    return identity[:begin] + bytes(4) + identity[end:]
