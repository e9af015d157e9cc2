"""The endpoints that may be picked, and the numbers of each that decisions use.

Invariant: ``candidates()`` shows every change made before the call. Owner: the event loop; not locked.
"""

from __future__ import annotations

import heapq
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from epp.errors import ConfigError
from epp.pool.seat import Endpoint, EngineMetrics, Seat
from scorers.base import Candidate, Silence, Slot

__all__ = ["Endpoint", "EngineMetrics", "Pool", "PoolListener", "check_address"]

MAX_ENDPOINTS = 10_000
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)):(?P<port>[0-9]{1,5})"
)


class PoolListener(Protocol):
    """The interface of objects that keep state per endpoint. Methods are called in the same step as the change."""

    def endpoint_added(self, candidate: Candidate) -> None:
        """An endpoint was added, and has ``candidate.slot`` from now on."""

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        """An endpoint was removed. All state for ``slot`` must be dropped, since the slot may be reused at once."""

    def engine_reported(self, candidate: Candidate) -> None:
        """The engine's block size or count, start time, models, places for adapters, or report on its tiers became
        known or changed; or ``fresh`` has changed while it reports tiers."""


class Pool:
    """The endpoints by slot. A slot is reused after its endpoint was removed, the lowest free one first."""

    def __init__(self, name: str = "epp") -> None:
        self.name = name
        self.listeners: list[PoolListener] = []
        self.on_busy: list[Callable[[str], None]] = []
        """Callbacks for the address of an endpoint that gets its first request in flight."""
        self.on_change: list[Callable[[], None]] = []
        """Callbacks for changes that may free capacity: an endpoint was added, removed or read, or a request ended."""
        self._seats: dict[str, Seat] = {}
        self._candidates: list[Candidate | None] = []  # by slot
        self._free: list[Slot] = []  # a heap of the free slots below len(_candidates)
        self._snapshot: tuple[Candidate, ...] | None = ()
        self._stale = 0  # of the candidates
        self._parked: set[Slot] = set()

    @property
    def all_fresh(self) -> bool:
        """Whether every candidate is fresh. O(1)."""
        return not self._stale

    @property
    def any_fresh(self) -> bool:
        """Whether at least one candidate is fresh."""
        return self._stale < len(self)

    def candidates(self) -> tuple[Candidate, ...]:
        """Return every endpoint that may be picked as it is now, ordered by slot."""
        if self._snapshot is None:
            everyone = self.everyone()
            parked = self._parked
            self._snapshot = tuple([c for c in everyone if c.slot not in parked]) if parked else everyone
        return self._snapshot

    def everyone(self) -> tuple[Candidate, ...]:
        """Return the candidates and the parked endpoints, ordered by slot."""
        everyone = tuple(self._candidates)
        return tuple([c for c in everyone if c]) if self._free else everyone  # type: ignore[return-value]

    def __len__(self) -> int:
        """The number of candidates."""
        return len(self._seats) - len(self._parked)

    def __contains__(self, address: object) -> bool:
        return address in self._seats

    def candidate(self, address: str) -> Candidate | None:
        """Return the endpoint at ``address`` as it is now, or None."""
        seat = self._seats.get(address)
        return None if seat is None else self._candidates[seat.slot]

    def endpoint(self, address: str) -> Endpoint | None:
        """Return the endpoint that ``replace`` got for ``address``, or None."""
        seat = self._seats.get(address)
        return None if seat is None else seat.endpoint

    def engine(self, address: str) -> EngineMetrics | None:
        """Return the last numbers of the engine at ``address``, or None."""
        seat = self._seats.get(address)
        return None if seat is None else seat.engine

    def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Make ``endpoints`` the pool: new ones are added, missing ones removed, the others keep their numbers.

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
        for address in [a for a in self._seats if a not in wanted]:
            self._remove(address)
        for endpoint in wanted.values():
            self._add(endpoint)

    def put(self, endpoint: Endpoint) -> None:
        """Add one endpoint, or give the one at its address a new name and labels; its numbers stay.

        It is a candidate from now on, if it was parked too. One of another identity takes the place of the one at its
        address. Raises: ConfigError for an address that is not ``host:port``, or one too many; nothing changes then.
        """
        check_address(endpoint.address)
        if endpoint.address not in self._seats and len(self._seats) >= MAX_ENDPOINTS:
            raise ConfigError(f"{endpoint.address}: a pool holds at most {MAX_ENDPOINTS} endpoints; split the pool")
        self._add(endpoint)

    def remove(self, address: str) -> None:
        """Remove one endpoint with everything that is kept for it. Raises: KeyError if it is not in the pool."""
        self._remove(address)

    def park(self, address: str) -> None:
        """Take one endpoint out of the candidates, and keep everything of it until ``put`` or ``remove``.

        Its requests stay in flight, its pages are read, and listeners hear nothing. Raises: KeyError if it is not in
        the pool.
        """
        seat = self._seats[address]
        if seat.slot not in self._parked:
            self._parked.add(seat.slot)
            self._stale -= seat.silence is not None
            self._snapshot = None
            self._notify_change()

    def observe(self, slot: Slot, engine: EngineMetrics, began_at: float) -> None:
        """Set the numbers of a scrape that began at ``began_at``; ignored for a removed endpoint."""
        seat = self._seat(slot)
        if seat is None or began_at < seat.began_at:
            return
        before, was_fresh = seat.engine, seat.silence is None
        if not seat.observe(engine, began_at):
            return
        candidate = self._changed(seat)
        self._notify_change()
        if _watched_fields(before) != _watched_fields(engine) or (engine.tiers and not was_fresh):
            for listener in self.listeners:
                listener.engine_reported(candidate)

    def mark_stale(self, slot: Slot, silence: Silence = Silence.LATE) -> None:
        """Mark the endpoint's numbers as not current, for the reason ``silence``. The last numbers stay."""
        seat = self._seat(slot)
        if seat is not None and seat.silence is not silence:
            was_fresh, seat.silence = seat.silence is None, silence
            candidate = self._changed(seat)
            if was_fresh and seat.engine.tiers:
                for listener in self.listeners:
                    listener.engine_reported(candidate)

    def pick(self, address: str, pick_id: int, uncached_tokens: int, now: float) -> None:
        """Count a pick. Called by the ledger only."""
        seat = self._seats.get(address)
        if seat is None:
            return
        seat.pick(pick_id, uncached_tokens, now)
        self._changed(seat)
        if seat.in_flight == 1:
            for busy in self.on_busy:
                busy(address)

    def answering(self, address: str, uncached_tokens: int) -> None:
        """Uncount a pick's tokens, since its response has begun. Called by the ledger only, once."""
        seat = self._seats.get(address)
        if seat is not None and uncached_tokens:
            seat.in_flight_tokens -= uncached_tokens
            self._changed(seat)
            self._notify_change()

    def end(self, address: str, pick_id: int, uncomputed_tokens: int) -> None:
        """Uncount a pick, and its prompt tokens that were not computed yet. Called by the ledger only, once."""
        seat = self._seats.get(address)
        if seat is not None:
            seat.end(pick_id, uncomputed_tokens)
            self._changed(seat)
            self._notify_change()

    def resume(self, address: str, in_flight: int, in_flight_tokens: int) -> None:
        """Count the open requests of an endpoint that was added again. Called by the ledger only."""
        seat = self._seats[address]
        seat.in_flight, seat.in_flight_tokens = in_flight, in_flight_tokens
        self._changed(seat)

    def _add(self, endpoint: Endpoint) -> None:
        seat = self._seats.get(endpoint.address)
        if seat is not None and seat.endpoint.identity != endpoint.identity:
            self._remove(endpoint.address)
        elif seat is not None:
            if seat.slot in self._parked:
                self._parked.remove(seat.slot)
                self._stale += seat.silence is not None
                self._snapshot = None
                self._notify_change()
            if seat.endpoint != endpoint:
                seat.endpoint = endpoint
                self._changed(seat)
            return
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            slot = Slot(len(self._candidates))
            self._candidates.append(None)
        seat = self._seats[endpoint.address] = Seat(slot, endpoint)
        candidate = self._changed(seat)
        for listener in self.listeners:
            listener.endpoint_added(candidate)
        self._notify_change()

    def _remove(self, address: str) -> None:
        seat = self._seats.pop(address)
        slot = seat.slot
        self._stale -= seat.silence is not None and slot not in self._parked
        self._parked.discard(slot)
        self._candidates[slot] = None
        heapq.heappush(self._free, slot)
        self._snapshot = None
        for listener in self.listeners:
            listener.endpoint_removed(slot, address)
        self._notify_change()

    def _notify_change(self) -> None:
        for changed in self.on_change:
            changed()

    def _seat(self, slot: Slot) -> Seat | None:
        candidate = self._candidates[slot] if slot < len(self._candidates) else None
        return None if candidate is None else self._seats[candidate.address]

    def _changed(self, seat: Seat) -> Candidate:
        slot, candidates = seat.slot, self._candidates
        before, candidate = candidates[slot], seat.candidate()
        candidates[slot] = candidate
        if slot in self._parked:
            return candidate
        self._stale += (before is None or before.fresh) - candidate.fresh
        self._snapshot = None
        return candidate


def _watched_fields(engine: EngineMetrics) -> tuple[object, ...]:
    """Return the fields whose changes are reported to listeners."""
    return (
        engine.block_tokens,
        engine.gpu_blocks,
        engine.started_s,
        engine.tiers,
        engine.models,
        engine.lora.max_loras,
    )


def check_address(address: str) -> None:
    """Check that ``address`` is ``host:port`` with a port from 1 to 65535. Raises: ConfigError."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536 or not (match["host"] or _is_ipv6(match["ipv6"])):
        raise ConfigError(
            f"endpoint {address!r} is not host:port, with a port from 1 to 65535 and IPv6 in brackets,"
            " such as 10.0.0.7:8000 or [fd00::7]:8000"
        )


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
