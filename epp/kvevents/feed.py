"""Runs the process that follows the engines, and applies its orders to the precise index, a few at a time.

The process starts and stops with the picker, and is restarted when it dies. Until it has caught up, no endpoint's
blocks are known.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import msgspec

import epp
from epp.errors import ConfigError
from epp.kvevents.applying import perform
from epp.kvevents.orders import (
    LENGTH_BYTES,
    Counts,
    Follow,
    FollowerMessage,
    Incomplete,
    Leave,
    Left,
    Note,
    SourceStatus,
    Start,
    framed,
)
from epp.kvevents.outages import PATIENCE_S, PublisherOutages
from epp.kvevents.wires import publishers_of, wires_of
from epp.metrics.gauges import Reading
from epp.pool.pool import Pool
from epp.runtime.background import Chore
from epp.runtime.slices import sliced
from scorers.base import Candidate
from scorers.index.identity import SECRET_BYTES
from scorers.precise.cache import PreciseCache
from scorers.precise.index import TIERS
from scorers.precise.parameters import KvEventsConfig

log = logging.getLogger(__name__)

READ_BYTES = 1 << 18
MOST_MESSAGE_BYTES = 1 << 24
SILENT_S = 60.0
"""After this time without a message the process is considered dead; it sends one every second. A guess, far above what
a full round over a thousand publishers takes.
"""
DIED = "its follower died"
WITHOUT_EVENTS = (Incomplete.NOT_CONNECTED.value, Incomplete.CATCHING_UP.value)
"""The states in which events that are published now may be missed."""
_NOTES = {
    "medium": "blocks in medium %r count for nothing: gpu, cpu and storage are known",
    "group": "blocks of cache groups of kind %r count for nothing: they do not stand for a whole prefix",
    "topic": "batches with topic %r are left out; kvEventsConfig.topicFilter or the topic's address does not fit",
    "address": "an address cannot be used: %s",
}


class FollowerDied(Exception):
    """Raised when the process that follows the engines has ended."""


def open_feed(cache: PreciseCache, settings: KvEventsConfig, pool: Pool) -> Feed:
    """Return the feed for ``cache``, not started yet. Raises: ConfigError if a library is missing."""
    if importlib.util.find_spec("zmq") is None:
        raise ConfigError(
            "precise-prefix-cache-producer: the package zmq is missing; pip install '.[precise]' in a clone of Tierwise"
        )
    return Feed(cache, settings, pool)


class Feed:
    """The picker's side of the follower process: sends commands, applies what comes back.

    Owner: the event loop. ``start`` and ``stop`` are called once.
    """

    def __init__(
        self, cache: PreciseCache, settings: KvEventsConfig, pool: Pool, *, silent_s: float = SILENT_S
    ) -> None:
        self.restarts = 0
        self.counts = Counts({}, 0, 0)
        self.pid: int | None = None
        self._cache = cache
        self._settings = settings
        self._pool = pool
        self._silent_s = silent_s
        self._outages = PublisherOutages()
        self._publishers: dict[int, tuple[str, ...]] = {}
        self._process: Process | None = None
        self._chore: Chore | None = None
        self._decode = msgspec.msgpack.Decoder(list[FollowerMessage]).decode

    def start(self) -> None:
        """Start the process, and follow the pool's endpoints, present and future."""
        self._chore = Chore("follow KV events", self._run)

    async def stop(self) -> None:
        """End the process and its task."""
        if self._chore is not None:
            await self._chore.stop()

    def follow(self, source: int, candidate: Candidate) -> None:
        """Implements ``scorers.precise.cache.Feed``: follow an endpoint."""
        wires = wires_of(candidate, self._settings)
        if not wires and not self._settings.zmq_endpoint:
            log.warning("%s: no port is known for its KV events; it is not followed", candidate.address)
        self._publishers[source] = publishers_of(candidate, self._settings)
        self._command(Follow(source, candidate.address, wires))

    def unfollow(self, source: int) -> None:
        """Implements ``scorers.precise.cache.Feed``: stop following an endpoint."""
        self._publishers.pop(source, None)
        self._command(Leave(source))

    async def _run(self) -> None:
        secret = os.urandom(SECRET_BYTES)
        process = await self._spawn()
        try:
            self._process, self.pid = process, process.pid
            self._command(Start(secret, self._settings.topic, self._settings.zmq_endpoint))
            await sliced(self._cache.begin(self, self._pool.everyone(), secret, DIED if self.restarts else ""))
            await self._handle(process)
            if process.returncode is None:
                process.kill()
            raise FollowerDied(  # noqa: TRY301 - however it ended, no endpoint is known any more
                f"process {process.pid} ended with status {await process.wait()}"
            )
        except Exception:
            self._cache.distrust(DIED)
            self.restarts += 1
            raise
        finally:
            self._process = self.pid = None
            await self._end(process)

    async def _spawn(self) -> Process:
        home = str(Path(epp.__file__).parents[1])
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "epp.kvevents.follower.child",
            stdin=PIPE, stdout=PIPE, limit=READ_BYTES, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    async def _end(self, process: Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def _handle(self, process: Process) -> None:
        """Apply what the process sends, until it ends or is silent for too long."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while True:
            try:
                async with asyncio.timeout(self._silent_s):
                    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
                    if length > MOST_MESSAGE_BYTES:
                        return
                    data = await process.stdout.readexactly(length)
            except (asyncio.IncompleteReadError, TimeoutError):
                return
            await sliced(self._steps(self._decode(data)))

    def _steps(self, reports: list[FollowerMessage]) -> Iterator[None]:
        index = self._cache.index
        for report in reports:
            if not perform(report, index):
                self._receive(report)
            yield

    def _receive(self, report: FollowerMessage) -> None:
        cache = self._cache
        if isinstance(report, SourceStatus):
            live = report.why not in WITHOUT_EVENTS
            cache.update_status(
                report.source, report.why, report.known, report.tokens, report.gaps, report.restarts, live=live
            )
        elif isinstance(report, Left):
            cache.released(report.source)
        elif isinstance(report, Counts):
            self.counts = report
            self._log_outages()
        elif isinstance(report, Note):
            if report.kind == "lora":
                cache.adapter(report.value)
            else:
                log.warning("KV events: " + _NOTES[report.kind], report.value)

    def _log_outages(self) -> None:
        for status in self._outages.look(self._cache.statuses(), self._cache.clock()):
            publishers = self._publishers.get(status.source)
            if publishers:
                log.warning(
                    "endpoint %s: no KV events for %g s, so it is judged by its horizon or our picks: %s",
                    status.address,
                    PATIENCE_S,
                    f"nobody has published for it at {publishers[0]}, where engines connect to us; topics must be "
                    "kv@HOST:PORT@MODEL"
                    if self._settings.zmq_endpoint
                    else f"nobody publishes at {' or '.join(publishers)}; is that the port of the engine's "
                    "--kv-events-config? podDiscoveryConfig.socketPort or socketPortOffset say it here",
                )

    def _command(self, command: Start | Follow | Leave) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(framed(command))

    def readings(self) -> Iterator[Reading]:
        """Return the metrics for ``Telemetry.gauge_source``."""
        statuses = self._cache.statuses()
        reasons: dict[tuple[str, ...], int] = {("known",): 0}
        for each in statuses:
            reasons[each.why or "known",] = reasons.get((each.why or "known",), 0) + 1
        yield Reading(
            "tierwise_kv_events_endpoints",
            "Endpoints by what is known of them from KV events: known, or why not.",
            ("state",),
            reasons.items(),
        )
        yield Reading(
            "tierwise_kv_events_known",
            "Whether everything that an endpoint holds in a tier is known from its KV events.",
            ("endpoint", "tier"),
            [
                ((each.address, tier.value), each.trusted >> bit & 1)
                for each in statuses
                for bit, tier in enumerate(TIERS)
            ],
        )
        yield Reading(
            "tierwise_kv_events_held_tokens",
            "Tokens that an endpoint holds in a tier, by its KV events.",
            ("endpoint", "tier"),
            [
                ((each.address, tier.value), tokens)
                for each in statuses
                for tier, tokens in zip(TIERS, each.tokens, strict=True)
            ],
        )
        for name, what, counts in (
            ("gaps", "Gaps in an endpoint's batches of KV events.", [each.gaps for each in statuses]),
            ("publisher_restarts", "Times an endpoint's batches began anew.", [each.restarts for each in statuses]),
        ):
            rows = [((each.address,), count) for each, count in zip(statuses, counts, strict=True)]
            yield Reading(f"tierwise_kv_events_{name}", what, ("endpoint",), rows, counter=True)
        yield Reading(
            "tierwise_kv_events",
            "KV events by what became of them: blocks stored and removed, and so on.",
            ("result",),
            [((name,), count) for name, count in self.counts.counts.items()],
            counter=True,
        )
        yield Reading("tierwise_kv_events_blocks", "Distinct blocks that are known.", (), [((), self.counts.blocks)])
        yield Reading(
            "tierwise_kv_events_follower_restarts",
            "Times the process that follows the engines died and was begun again.",
            (),
            [((), self.restarts)],
            counter=True,
        )
        yield Reading(
            "tierwise_picks_not_precise",
            "Picks whose endpoint was not known from its KV events, by the reason.",
            ("reason",),
            [((reason,), count) for reason, count in self._cache.fallbacks.items()],
            counter=True,
        )
