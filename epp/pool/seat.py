"""One endpoint's numbers: its engine's last report, and the requests that were sent to it since.

Scraped numbers are up to one interval old; our own picks are exact. Picks that the engine's page cannot have counted
yet are added here, so that the requests of a burst do not all see the same stale numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from scorers.base import Candidate, LoraState, Silence, Slot, Tier, TierReport

STEP_TOKENS = 8192
"""Number of prompt tokens that an engine computes in one step. Source: vLLM's default ``max_num_batched_tokens`` for
online serving on large GPUs."""
BATCH_REQUESTS = 256
"""Number of requests that an engine runs at once. Source: vLLM's default ``max_num_seqs``."""
SETTLE_S = 2.0
"""How long it may take until an engine counts a request, since its counts change once per step. A guess: longer than
the longest step of a prefill."""


class Endpoint(msgspec.Struct, frozen=True):
    """An address that requests can be sent to."""

    address: str
    """``host:port``, IPv6 in brackets."""
    name: str = ""
    """The name of the endpoint, as ``namespace/name``."""
    labels: Mapping[str, str] = {}
    metrics_url: str | None = None
    """The URL of its metrics page; None for the scraper's scheme and path at ``address``."""
    identity: str = ""
    """What tells it from an earlier or later endpoint at its address: nothing that was learned of one holds for the
    other. Empty where the source of the endpoints does not know."""


class EngineMetrics(msgspec.Struct, frozen=True):
    """The numbers of one engine from one reading of its metrics page."""

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    block_tokens: int | None = None
    gpu_blocks: int | None = None
    lora: LoraState = LoraState()
    attributes: Mapping[str, float] = {}
    """Other numbers by name, as the configuration's ``customMetrics`` read them."""
    tiers: Mapping[Tier, TierReport] = {}
    """The engine's reports on its tiers."""
    started_s: float | None = None
    """The Unix time at which the engine started, by its own clock. A restarted or replaced engine has another."""
    models: frozenset[str] = frozenset()
    """The models that its page names; the engine may serve them by other names, too."""
    partial: bool = False
    """Whether ``waiting`` or ``running`` is unknown, so that their sum is not the engine's number of requests."""
    doubted: tuple[str, ...] = ()
    """Impossible values, which are ignored, such as ``vllm:num_requests_running 1e+30``."""


class _Unseen(NamedTuple):
    """A pick that the engine's numbers do not include yet."""

    opened_at: float
    uncached_tokens: int
    queued: bool


class Seat:
    """The numbers of one endpoint. Owner: the pool.

    Invariant: ``queued`` and ``unseen_tokens`` are the sums over ``unseen``.
    """

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
        """The reason why ``engine`` is not current; None while it is."""
        self.in_flight = 0
        self.in_flight_tokens = 0
        self.unseen: dict[int, _Unseen] = {}
        self.queued = 0
        """The number of ``unseen`` picks that wait in the engine's queue, by our estimate."""
        self.unseen_tokens = 0

    def candidate(self) -> Candidate:
        """Return the endpoint as decisions see it."""
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
        """Count a pick. It counts as queued if the engine has a queue, if the prefill before it fills a step, or if the
        batch is full; otherwise it counts as running."""
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
        """Uncount a pick, and its tokens that were not computed."""
        self.in_flight -= 1
        self.in_flight_tokens -= uncomputed_tokens
        self._mark_seen(pick_id)

    def observe(self, engine: EngineMetrics, began_at: float) -> bool:
        """Set the numbers of a scrape that began at ``began_at``; return whether a decision would see a difference.

        Picks before it are included in its numbers, if these are large enough: an engine in a long step has not counted
        the requests that arrived during the step, and then the youngest picks stay unseen.
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
