"""What endpoints hold according to their engines' events: the index, and how far it can be trusted.

A *feed* follows the engines. It is given the endpoints, and reports what each one holds and whether that is complete.
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
"""The beginning of the identity of a prompt that was sent as token ids."""
FULL = 0.95
"""A tier that is filled to this share with known blocks holds next to nothing else. A guess."""
NOT_STARTED = "not started"
"""The reason that stands for an endpoint that the feed has not reported on yet."""


class Feed(Protocol):
    """Follows the engines' events; the receiver of its reports is ``PreciseCache``."""

    def follow(self, source: int, candidate: Candidate) -> None:
        """Report what ``candidate`` holds from now on, as ``source``."""

    def leave(self, source: int) -> None:
        """Stop reporting on ``source``; call ``PreciseCache.left`` once nothing is held under it any more."""


@dataclass(slots=True)
class Told:
    """What one endpoint's engine has reported, and how complete that is."""

    source: int
    slot: Slot
    address: str
    why: str = NOT_STARTED
    """Why it is uncertain what the endpoint holds; empty if it is certain."""
    known: int = 0
    """The tiers whose contents are completely known, one bit for each of ``TIERS``."""
    tokens: tuple[int, ...] = (0, 0, 0)
    gaps: int = 0
    restarts: int = 0
    capacity: tuple[int, ...] = (0, 0, 0)
    """Capacity of each tier as the engine reports it; 0 if it does not."""
    block_tokens: int | None = None
    """Tokens per block of GPU memory, as the engine reports it."""
    hears: bool = False
    """Whether the feed receives everything that is published now."""

    @property
    def sure(self) -> int:
        """The tiers that can be trusted, one bit each: reported completely, or full of what was reported."""
        full = 0
        if self.hears:
            for bit, (held, capacity) in enumerate(zip(self.tokens, self.capacity, strict=True)):
                full |= (capacity > 0 and held >= FULL * capacity) << bit
        return self.known | full


class Found(msgspec.Struct, frozen=True):
    """What is known of a request's prompts."""

    total_tokens: int
    """Number of tokens in full blocks."""
    held: Mapping[Tier, Mapping[Slot, int]]
    """Contiguous tokens by tier and endpoint, for endpoints whose tier is known."""


class PreciseCache:
    """What each endpoint holds, as its engine's events report it. A listener of the pool.

    Sources have small numbers, which are positions in bit masks; a number is reused when nothing is held under it any
    more. Owner: the event loop.
    """

    def __init__(
        self,
        *,
        block_tokens: int = 16,
        speculate_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        secret: bytes | None = None,
    ) -> None:
        """Create an empty cache.

        ``block_tokens`` is the assumed block size until an engine reports one; ``speculate_s`` is how long a pick
        counts as if its prompt were held already, None for not at all.
        """
        self.index = PreciseIndex(secret)
        self.speculation = Speculations(speculate_s, secret) if speculate_s is not None else None
        self.fallbacks: Counter[str] = Counter()
        """Number of picks whose endpoint was not known precisely, by reason."""
        self.feed: Feed | None = None
        self.clock = clock
        self._block_tokens = block_tokens
        self._told: dict[Slot, Told] = {}
        self._by_source: dict[int, Told] = {}
        self._free: list[int] = []
        self._next = 0
        self._adapters: frozenset[str] = frozenset()
        self._modes: dict[Tier, dict[Slot, Mode]] = {tier: {} for tier in TIERS}

    # Called by the pool

    def endpoint_added(self, candidate: Candidate) -> None:
        """Add a new endpoint, and have the feed follow it."""
        self.endpoint_removed(candidate.slot, "")  # the slot's previous endpoint
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
        """Remove an endpoint; what its source still holds is ignored."""
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
        """Update how much the endpoint's tiers can hold."""
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

    # Called by the feed

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
        """Update the status that the follower reports for ``source``; ``hears`` is false while events may be missed."""
        told = self._by_source.get(source)
        if told is None:
            return
        before = told.sure
        told.why, told.known, told.tokens, told.gaps, told.restarts = why, known, tuple(tokens), gaps, restarts
        told.hears = hears
        if told.sure != before:
            self._believe()

    def doubt(self, why: str) -> None:
        """Distrust every endpoint for the reason ``why``, because the feed reports nothing any more."""
        for told in self._told.values():
            told.known, told.why, told.hears = 0, why, False
        self._believe()

    def left(self, source: int) -> None:
        """Free the number of ``source``, since nothing is held under it any more."""
        if source not in self._by_source:
            self._free.append(source)

    def adapter(self, name: str) -> None:
        """Note that ``name`` is a LoRA adapter of some engine."""
        self._adapters |= {name}

    def begin(self, feed: Feed, candidates: Sequence[Candidate], secret: bytes, why: str = "") -> Iterator[None]:
        """Forget everything, and have ``feed`` follow ``candidates``; its digests are made with ``secret``.

        Iterate over the result to take the old index apart (``PreciseIndex.clear``).
        """
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

    # Called by the producers

    def told(self, slot: Slot) -> Told | None:
        """Return the status of an endpoint; None for an unknown one."""
        return self._told.get(slot)

    def everyone(self) -> list[Told]:
        """Return the status of all endpoints."""
        return list(self._told.values())

    def modes(self, tier: Tier) -> dict[Slot, Mode]:
        """Return ``Mode.PRECISE`` for each endpoint whose ``tier`` is known; the result must not be changed."""
        return self._modes[tier]

    def find(self, prompts: Sequence[Prompt]) -> Found:
        """Return what is held of ``prompts``, which are token ids, and would be a cache hit.

        An engine always computes a prompt's last token, since it continues from there. So a block that ends with the
        last token is not a cache hit.
        """
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
        """Count why the endpoint was not known, or speculate that it will soon hold the prompts."""
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
        """Return the identity as events use it: with an adapter's name, or without any other model's name."""
        return renamed(identity, self._adapters)

    def _believe(self) -> None:
        self._modes = {
            tier: {slot: Mode.PRECISE for slot, told in self._told.items() if told.sure >> bit & 1}
            for bit, tier in enumerate(TIERS)
        }


def usable_tokens(prompt: Prompt) -> int:
    """Return how many tokens of a prompt of token ids may be a cache hit."""
    return max(0, len(prompt.data) // BYTES_PER_TOKEN - 1)


def token_prompts(request: Request) -> Sequence[Prompt] | None:
    """Return the request's prompts as token ids; None if they are unknown."""
    if request.tokens is not None:
        return request.tokens
    sent = request.prompts
    return sent if sent and all(prompt.identity.startswith(_OF_TOKENS) for prompt in sent) else None


@lru_cache(maxsize=4096)
def renamed(identity: bytes, adapters: frozenset[str] = frozenset()) -> bytes:
    """Return an identity of token ids without its model, unless the model is one of ``adapters``.

    An identity is a kind, a model and a salt, each after its length in four bytes.
    """
    begin = 4 + int.from_bytes(identity[:4], "little")
    end = begin + 4 + int.from_bytes(identity[begin : begin + 4], "little")
    if identity[begin + 4 : end].decode(errors="surrogatepass") in adapters:
        return identity
    return identity[:begin] + bytes(4) + identity[end:]
