"""The endpoints that may be picked, and the numbers that a decision sees of each.

Scraped numbers are old by up to an interval, our own picks are not: what we sent since an engine's page was read is
added here, so that a burst never sees the same stale numbers twice.

Invariant: ``candidates()`` shows every change made before the call. Owner: the event loop; not locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from epp.errors import ConfigError
from scorers.base import Candidate, LoraState, Slot

MAX_ENDPOINTS = 10_000
STEP_TOKENS = 8192
"""Prompt tokens that an engine computes in one step. Source: vLLM's default ``max_num_batched_tokens`` for online
serving on large GPUs."""
BATCH_REQUESTS = 256
"""Requests that an engine runs at once. Source: vLLM's default ``max_num_seqs``."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where requests can be sent. ``address`` is its identity."""

    address: str
    """``host:port``, IPv6 in brackets."""
    name: str = ""
    labels: Mapping[str, str] = {}


class EngineMetrics(msgspec.Struct, frozen=True):
    """What one read of an engine's metrics page says."""

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    block_tokens: int | None = None
    gpu_blocks: int | None = None
    lora: LoraState = LoraState()


class PoolListener(Protocol):
    """Who keeps something per endpoint. Called in the same step as the change."""

    def endpoint_added(self, candidate: Candidate) -> None:
        """``candidate.slot`` now belongs to this endpoint."""

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        """Everything kept for ``slot`` is to be dropped: it may be reused at once."""

    def engine_reported(self, candidate: Candidate) -> None:
        """The engine's block size or count became known, or changed."""


class _Unseen(msgspec.Struct):
    """A pick that no scrape can have seen yet."""

    opened_at: float
    uncached_tokens: int
    queued: bool


class _Seat:
    """One endpoint's numbers."""

    __slots__ = ("began_at", "endpoint", "engine", "fresh", "in_flight", "queued", "slot", "unseen", "unseen_tokens")

    def __init__(self, slot: Slot, endpoint: Endpoint) -> None:
        self.slot = slot
        self.endpoint = endpoint
        self.engine = EngineMetrics()
        self.began_at = float("-inf")
        self.fresh = False
        self.in_flight = 0
        self.unseen: dict[int, _Unseen] = {}
        self.queued = 0
        """How many of ``unseen`` wait in the engine's queue, by our estimate."""
        self.unseen_tokens = 0

    def candidate(self) -> Candidate:
        endpoint, engine = self.endpoint, self.engine
        return Candidate(
            slot=self.slot,
            address=endpoint.address,
            name=endpoint.name,
            labels=endpoint.labels,
            waiting=engine.waiting + self.queued,
            running=engine.running + len(self.unseen) - self.queued,
            kv_usage=engine.kv_usage,
            in_flight=self.in_flight,
            fresh=self.fresh,
            block_tokens=engine.block_tokens,
            gpu_blocks=engine.gpu_blocks,
            lora=engine.lora,
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
        self.unseen[pick_id] = _Unseen(now, uncached_tokens, queued)
        self.unseen_tokens += uncached_tokens
        self.queued += queued

    def end(self, pick_id: int) -> None:
        self.in_flight -= 1
        self._see(pick_id)

    def observe(self, engine: EngineMetrics, began_at: float) -> None:
        """Take what a scrape says that began at ``began_at``; the picks before it are in its numbers."""
        self.engine, self.began_at, self.fresh = engine, began_at, True
        for pick_id in [key for key, pick in self.unseen.items() if pick.opened_at < began_at]:
            self._see(pick_id)

    def _see(self, pick_id: int) -> None:
        pick = self.unseen.pop(pick_id, None)
        if pick is not None:
            self.unseen_tokens -= pick.uncached_tokens
            self.queued -= pick.queued


class Pool:
    """The endpoints by slot. A slot is reused only after its endpoint was removed; the lowest free one first."""

    def __init__(self, name: str = "epp") -> None:
        self.name = name
        self.listeners: list[PoolListener] = []
        self._seats: list[_Seat | None] = []
        self._by_address: dict[str, _Seat] = {}
        self._candidates: dict[Slot, Candidate] = {}
        self._snapshot: tuple[Candidate, ...] | None = ()

    def candidates(self) -> tuple[Candidate, ...]:
        """Every endpoint as it is now, by slot."""
        if self._snapshot is None:
            self._snapshot = tuple(self._candidates.values())
        return self._snapshot

    def __len__(self) -> int:
        return len(self._by_address)

    def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Make ``endpoints`` the pool: new addresses are added, missing ones removed, the others keep their numbers.

        Raises: ConfigError for an address that is not ``host:port``, listed twice, or too many; nothing changes then.
        """
        if len(endpoints) > MAX_ENDPOINTS:
            raise ConfigError(f"{len(endpoints)} endpoints, and a pool holds at most {MAX_ENDPOINTS}; split the pool")
        wanted: dict[str, Endpoint] = {}
        for endpoint in endpoints:
            check_address(endpoint.address)
            if endpoint.address in wanted:
                raise ConfigError(f"endpoint {endpoint.address} is listed twice; list each address once")
            wanted[endpoint.address] = endpoint
        for address in [a for a in self._by_address if a not in wanted]:
            self._remove(address)
        for endpoint in wanted.values():
            self._add(endpoint)

    def observe(self, slot: Slot, engine: EngineMetrics, began_at: float) -> None:
        """Take the numbers of a scrape that began at ``began_at``; ignored for an endpoint that is gone."""
        seat = self.seat(slot)
        if seat is None or began_at < seat.began_at:
            return
        before = (seat.engine.block_tokens, seat.engine.gpu_blocks)
        seat.observe(engine, began_at)
        self._changed(seat)
        if before != (engine.block_tokens, engine.gpu_blocks):
            for listener in self.listeners:
                listener.engine_reported(self._candidates[slot])

    def mark_stale(self, slot: Slot) -> None:
        """The endpoint's numbers are too old to be believed; they stay the last known."""
        seat = self.seat(slot)
        if seat is not None and seat.fresh:
            seat.fresh = False
            self._changed(seat)

    def pick(self, slot: Slot, pick_id: int, uncached_tokens: int, now: float) -> None:
        """Count a pick; the ledger's to call."""
        seat = self.seat(slot)
        if seat is not None:
            seat.pick(pick_id, uncached_tokens, now)
            self._changed(seat)

    def end(self, slot: Slot, pick_id: int) -> None:
        """Uncount a pick; the ledger's to call, once, and not after the endpoint was removed."""
        seat = self.seat(slot)
        if seat is not None:
            seat.end(pick_id)
            self._changed(seat)

    def seat(self, slot: Slot) -> _Seat | None:
        """The endpoint of ``slot``."""
        return self._seats[slot] if slot < len(self._seats) else None

    def _add(self, endpoint: Endpoint) -> None:
        seat = self._by_address.get(endpoint.address)
        if seat is not None:
            if seat.endpoint != endpoint:
                seat.endpoint = endpoint
                self._changed(seat)
            return
        slot = Slot(self._seats.index(None) if None in self._seats else len(self._seats))
        seat = _Seat(slot, endpoint)
        if slot == len(self._seats):
            self._seats.append(seat)
        else:
            self._seats[slot] = seat
        self._by_address[endpoint.address] = seat
        self._changed(seat)
        for listener in self.listeners:
            listener.endpoint_added(self._candidates[slot])

    def _remove(self, address: str) -> None:
        seat = self._by_address.pop(address)
        self._seats[seat.slot] = None
        del self._candidates[seat.slot]
        self._snapshot = None
        for listener in self.listeners:
            listener.endpoint_removed(seat.slot, address)

    def _changed(self, seat: _Seat) -> None:
        self._candidates[seat.slot] = seat.candidate()
        self._snapshot = None


def check_address(address: str) -> None:
    """Raises: ConfigError unless ``address`` is ``host:port`` with a port from 1 to 65535."""
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536) or (":" in host) != (host[0] == "["):
        raise ConfigError(f"endpoint {address!r} is not host:port, with a port from 1 to 65535 and IPv6 in brackets")
