"""One endpoint's numbers: what its engine said last, and what we sent it since.

Scraped numbers are old by up to an interval, our own picks are not: what an engine's page cannot have counted yet is
added here, so that a burst never sees the same stale numbers twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from scorers.base import Candidate, LoraState, Silence, Slot, Tier, TierReport

STEP_TOKENS = 8192
"""Prompt tokens that an engine computes in one step. Source: vLLM's default ``max_num_batched_tokens`` for online
serving on large GPUs."""
BATCH_REQUESTS = 256
"""Requests that an engine runs at once. Source: vLLM's default ``max_num_seqs``."""
SETTLE_S = 2.0
"""How long a request may be on its way into an engine's counts, which change once a step: a guess, beyond the longest
step of a prefill."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where requests can be sent. ``address`` is its identity."""

    address: str
    """``host:port``, IPv6 in brackets."""
    name: str = ""
    """``namespace/name``."""
    labels: Mapping[str, str] = {}
    metrics_url: str | None = None
    """Where its metrics are; None for the scraper's scheme and path at ``address``."""


class EngineMetrics(msgspec.Struct, frozen=True):
    """What one read of an engine's metrics page says."""

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    block_tokens: int | None = None
    gpu_blocks: int | None = None
    lora: LoraState = LoraState()
    attributes: Mapping[str, float] = {}
    """Other numbers by name, as the configuration's ``customMetrics`` read them."""
    tiers: Mapping[Tier, TierReport] = {}
    """What it says of its tiers."""
    started_s: float | None = None
    """Unix time at which it began, by its own clock: another one is another engine, or the same one started again."""
    models: frozenset[str] = frozenset()
    """Models that its page names; it may serve them by other names, too."""
    partial: bool = False
    """Whether ``waiting`` or ``running`` is not known, so that their sum is not how many requests the engine has."""
    doubted: tuple[str, ...] = ()
    """Readings that no engine can have, and that are taken as not said: ``vllm:num_requests_running 1e+30``."""


class _Unseen(NamedTuple):
    """A pick that the engine's numbers do not contain yet."""

    opened_at: float
    uncached_tokens: int
    queued: bool


class Seat:
    """Invariant: ``queued`` and ``unseen_tokens`` are the sums over ``unseen``. Owner: the pool."""

    __slots__ = (
        "began_at",
        "endpoint",
        "engine",
        "in_flight",
        "in_flight_tokens",
        "queued",
        "silence",
        "slot",
        "unseen",
        "unseen_tokens",
    )

    def __init__(self, slot: Slot, endpoint: Endpoint) -> None:
        self.slot = slot
        self.endpoint = endpoint
        self.engine = EngineMetrics()
        self.began_at = float("-inf")
        self.silence: Silence | None = Silence.UNREAD
        """Why ``engine`` is not to be believed; None while it is."""
        self.in_flight = 0
        self.in_flight_tokens = 0
        self.unseen: dict[int, _Unseen] = {}
        self.queued = 0
        """How many of ``unseen`` wait in the engine's queue, by our estimate."""
        self.unseen_tokens = 0

    def candidate(self) -> Candidate:
        """The endpoint as a decision sees it."""
        endpoint, engine, queued = self.endpoint, self.engine, self.queued
        kv_usage, running = engine.kv_usage, engine.running + len(self.unseen) - queued
        if engine.partial:  # what is ours and does not wait runs
            running = max(running, self.in_flight - engine.waiting - queued)
        if self.unseen_tokens and engine.gpu_blocks and engine.block_tokens:
            kv_usage = min(1.0, kv_usage + self.unseen_tokens / (engine.gpu_blocks * engine.block_tokens))
        return Candidate(
            self.slot,
            endpoint.address,
            endpoint.name,
            endpoint.labels,
            engine.waiting + queued,
            running,
            kv_usage,
            self.in_flight,
            self.in_flight_tokens,
            self.silence is None,
            engine.block_tokens,
            engine.gpu_blocks,
            engine.lora,
            engine.attributes,
            engine.tiers,
            self.silence or Silence.LATE,
        )

    def pick(self, pick_id: int, uncached_tokens: int, now: float) -> None:
        """Count a pick. It waits where the engine already queues, where the prefill ahead of it fills a step, or where
        the batch is full; else it runs at the engine's next step."""
        queued = (
            self.engine.waiting + self.queued > 0
            or self.unseen_tokens >= STEP_TOKENS
            or self.engine.running + len(self.unseen) >= BATCH_REQUESTS
        )
        self.in_flight += 1
        self.in_flight_tokens += uncached_tokens
        self.unseen[pick_id] = _Unseen(now, uncached_tokens, queued)
        self.unseen_tokens += uncached_tokens
        self.queued += queued

    def end(self, pick_id: int, uncomputed_tokens: int) -> None:
        """Uncount a pick, and what is left of its tokens."""
        self.in_flight -= 1
        self.in_flight_tokens -= uncomputed_tokens
        self._mark_seen(pick_id)

    def observe(self, engine: EngineMetrics, began_at: float) -> bool:
        """Take what a scrape says that began at ``began_at``; returns whether a decision would see a difference.

        The picks before it are in its numbers, if they fit into them: an engine in a long step has not counted what
        arrived meanwhile, and then the youngest stay unseen.
        """
        changed = self.silence is not None or engine != self.engine
        self.engine, self.began_at, self.silence = engine, began_at, None
        uncounted = self.in_flight - engine.waiting - engine.running
        for pick_id, pick in list(self.unseen.items()):
            on_its_way = len(self.unseen) <= uncounted and began_at - pick.opened_at < SETTLE_S
            if pick.opened_at >= began_at or on_its_way:
                break
            self._mark_seen(pick_id)
            changed = True
        return changed

    def _mark_seen(self, pick_id: int) -> None:
        pick = self.unseen.pop(pick_id, None)
        if pick is not None:
            self.unseen_tokens -= pick.uncached_tokens
            self.queued -= pick.queued
