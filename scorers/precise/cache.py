"""What endpoints hold according to their engines' events: the index, and how far it can be trusted.

A *feed* follows the engines. It is given the endpoints, and reports what each one holds and whether that is complete.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from scorers.base import Candidate, Mode, Prompt, Request, Slot, Tier
from scorers.precise.index import TIERS, PreciseIndex
from scorers.precise.prompts import renamed, token_prompts, usable_tokens
from scorers.precise.speculation import Speculations
from scorers.precise.status import NOT_STARTED, EndpointStatus, StatusTable


class Feed(Protocol):
    """Follows the engines' events; the receiver of its reports is ``PreciseCache``."""

    def follow(self, source: int, candidate: Candidate) -> None:
        """Report what ``candidate`` holds from now on, as ``source``."""

    def unfollow(self, source: int) -> None:
        """Stop reporting on ``source``; call ``PreciseCache.released`` once nothing is held under it any more."""


class Found(msgspec.Struct, frozen=True):
    """What is known of a request's prompts."""

    total_tokens: int
    """Number of tokens in full blocks."""
    held: Mapping[Tier, Mapping[Slot, int]]
    """Contiguous tokens by tier and endpoint, for endpoints whose tier is known."""


class PreciseCache:
    """What each endpoint holds, as its engine's events report it. A listener of the pool.

    Owner: the event loop.
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
        self._statuses = StatusTable()
        self._adapters: frozenset[str] = frozenset()
        self._modes: dict[Tier, dict[Slot, Mode]] = {tier: {} for tier in TIERS}

    # Called by the pool

    def endpoint_added(self, candidate: Candidate) -> None:
        """Add a new endpoint, and have the feed follow it."""
        self.endpoint_removed(candidate.slot, "")  # the slot's previous endpoint
        status = self._statuses.add(candidate)
        self.engine_reported(candidate)
        if self.feed is not None:
            self.feed.follow(status.source, candidate)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Remove an endpoint; what its source still holds is ignored."""
        status = self._statuses.remove(slot)
        if status is None:
            return
        self._update_modes()
        if self.speculation is not None:
            self.speculation.forget(slot)
        if self.feed is not None:
            self.feed.unfollow(status.source)
        else:
            self._statuses.release(status.source)

    def engine_reported(self, candidate: Candidate) -> None:
        """Update how much the endpoint's tiers can hold."""
        status = self._statuses.of(candidate.slot)
        if status is None:
            return
        gpu = (candidate.gpu_blocks or 0) * (candidate.block_tokens or 0)
        reports = [candidate.tiers.get(tier) for tier in TIERS]
        of_tiers = [(report.capacity_tokens or 0) if report is not None else 0 for report in reports]
        status.block_tokens = candidate.block_tokens
        before = status.trusted
        status.capacity = (gpu or of_tiers[0], *of_tiers[1:])
        if status.trusted != before:
            self._update_modes()

    # Called by the feed

    def update_status(
        self,
        source: int,
        why: str,
        known: int,
        tokens: Sequence[int],
        gaps: int = 0,
        restarts: int = 0,
        *,
        live: bool = True,
    ) -> None:
        """Update the status that the follower reports for ``source``; ``live`` is false while events may be missed."""
        status = self._statuses.of_source(source)
        if status is None:
            return
        before = status.trusted
        status.why, status.known, status.tokens, status.live = why, known, tuple(tokens), live
        status.gaps, status.restarts = gaps, restarts
        if status.trusted != before:
            self._update_modes()

    def distrust(self, why: str) -> None:
        """Distrust every endpoint for the reason ``why``, because the feed reports nothing any more."""
        for status in self._statuses:
            status.known, status.why, status.live = 0, why, False
        self._update_modes()

    def released(self, source: int) -> None:
        """Free the number of ``source``, since nothing is held under it any more."""
        self._statuses.release(source)

    def adapter(self, name: str) -> None:
        """Note that ``name`` is a LoRA adapter of some engine."""
        self._adapters |= {name}

    def begin(self, feed: Feed, candidates: Sequence[Candidate], secret: bytes, why: str = "") -> Iterator[None]:
        """Forget everything, and have ``feed`` follow ``candidates``; its digests are made with ``secret``.

        Iterate over the result to take the old index apart (``PreciseIndex.clear``).
        """
        old_runs = self.index.clear(secret)
        self._statuses = StatusTable()
        self.feed = feed
        for candidate in candidates:
            self.endpoint_added(candidate)
        for status in self._statuses:
            status.why = why or NOT_STARTED
        self._update_modes()
        return old_runs

    # Called by the producers

    def status(self, slot: Slot) -> EndpointStatus | None:
        """Return the status of an endpoint; None for an unknown one."""
        return self._statuses.of(slot)

    def statuses(self) -> list[EndpointStatus]:
        """Return the status of all endpoints."""
        return list(self._statuses)

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
            match = self.index.match(renamed(prompt.identity, self._adapters), prompt.data, usable)
            for bit, tier in enumerate(TIERS):
                of_tier, known = held[tier], self._modes[tier]
                for source, tokens in match.held[bit].items():
                    status = self._statuses.of_source(source)
                    if status is not None and status.slot in known:
                        of_tier[status.slot] = of_tier.get(status.slot, 0) + tokens
        if self.speculation is not None and len(self.speculation):
            self._speculate(prompts, held[Tier.GPU])
        return Found(total, held)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Count why the endpoint was not known, or speculate that it will soon hold the prompts."""
        status = self._statuses.of(candidate.slot)
        prompts = token_prompts(request)
        if prompts is None:
            self.fallbacks["no tokens"] += 1
        elif status is None or not status.trusted & 1:
            self.fallbacks[status.why if status is not None else NOT_STARTED] += 1
        elif self.speculation is not None:
            now = self.clock()
            for prompt in prompts:
                self.speculation.add(prompt, candidate.slot, status.block_tokens or self._block_tokens, now)

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

    def _update_modes(self) -> None:
        self._modes = {
            tier: {status.slot: Mode.PRECISE for status in self._statuses if status.trusted >> bit & 1}
            for bit, tier in enumerate(TIERS)
        }
