"""Keeps the prefix index from one run of the picker to the next.

The index is written to a file at shutdown, and at intervals before that, since a picker may be killed. At start, its
secret key is restored first, and then each endpoint's part as soon as its engine is known to be the same as before
(``epp.pool.restarts``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path

from epp.metrics.gauges import Reading
from epp.pool import index_file
from epp.pool.index_file import SavedIndex, SnapshotError
from epp.pool.pool import Pool
from epp.pool.restarts import identity
from epp.runtime.logs import counted
from epp.runtime.slices import sliced
from scorers.base import Candidate, Slot
from scorers.index.snapshot import restore
from scorers.index.snapshot_writer import SnapshotBuilder
from scorers.prefix.cache import PrefixCache

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long to wait for the identity of an endpoint's engine. A guess: it is read within a second, or is down."""
WRITE_S = 10.0
"""How long writing may delay shutdown. A guess: a million blocks take less than 0.1 s."""


class Fate(Enum):
    """What became of an endpoint's part of the snapshot."""

    RESTORED = "restored"
    ANOTHER_ENGINE = "another-engine"
    UNKNOWN_ENGINE = "unknown-engine"
    GONE = "gone"


class IndexKeeper:
    """Restores and writes the index. It is a listener of the pool, behind the prefix cache. Owner: the event loop.

    Invariant: the parts that wait to be restored were hashed with the secret key of the cache in use.
    """

    def __init__(
        self,
        path: Path,
        pool: Pool,
        in_use: Callable[[], PrefixCache | None],
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        every_s: float = 0.0,
    ) -> None:
        """``now_s`` is Unix time, ``clock`` the clock of the picks. The file is written every ``every_s`` seconds; 0 is
        at shutdown only."""
        self._path = path
        self._pool = pool
        self._in_use = in_use
        self._now_s = now_s
        self._clock = clock
        self._kept: SavedIndex | None = None
        self._waiting: set[str] = set()
        self._cache: PrefixCache | None = None  # the cache that got the secret key
        self._fates: Counter[Fate] = Counter()
        self._blocks = 0
        self._is_ours = True
        self._every_s = every_s
        self._writes = Counter({"written": 0, "failed": 0})
        self._begun = self._written = 0  # writes, by number
        self._writing = threading.Lock()
        self._logged_failure = ""  # why the file could not be written

    def load(self) -> None:
        """Read the file, if there is one that can be used. To be called before endpoints are added."""
        cache = self._in_use()
        index_file.tidy(self._path, self._now_s())
        try:
            kept = index_file.read(self._path, self._now_s())
            if kept is None or cache is None:
                return
            index = kept.index
            check_fits(kept, cache)
            cache.index.use_secret(index.secret)
        except (SnapshotError, ValueError) as error:
            self._is_ours = not isinstance(error, index_file.NotOurs)
            log.warning("index snapshot %s is not used: it %s", self._path, error)
            return
        self._kept, self._cache, self._waiting = kept, cache, set(index.endpoints)
        log.info(
            "index snapshot %s: %s of %s, %.0f s old; each endpoint's are restored once its engine says it is the same",
            self._path, counted(index.blocks, "block"), counted(len(self._waiting), "endpoint"),
            self._now_s() - kept.written_s,
        )  # fmt: skip

    def started(self) -> None:
        """Delete the file that was read, since it is out of date once the picker serves; unless it is written again at
        intervals."""
        if self._kept is not None and not self._every_s:
            self._path.unlink(missing_ok=True)

    async def keep(self) -> None:
        """Write the file at intervals, for ever, once all parts of the last one were restored or given up."""
        while True:
            await asyncio.sleep(self._every_s)
            if not self._waiting:
                await self.save_while_serving()

    async def save_while_serving(self) -> None:
        """Write the file while requests are served. They wait for slices of the work, for each endpoint's list, and for
        the encoding, which runs in a thread but holds the interpreter's lock."""
        begun = self._begin()
        if begun is None:
            return
        builder, slots, write = begun
        for address, slot in slots.items():
            candidate = self._pool.candidate(address)
            if candidate is not None and candidate.slot == slot:  # or another endpoint may have its slot by now
                await sliced(builder.steps(address, slot))
        await in_thread(partial(write, logging.DEBUG))

    def give_up(self) -> None:
        """Stop waiting for engines, and log what became of the snapshot's parts."""
        self._settle_all()

    def save(self) -> Callable[[], None] | None:
        """Take a snapshot; return what writes it, in any thread, or None if there is nothing to write."""
        begun = self._begin()
        if begun is None:
            return None
        builder, slots, write = begun
        for address, slot in slots.items():
            for _ in builder.steps(address, slot):
                pass
        return write

    def _begin(self) -> tuple[SnapshotBuilder, Mapping[str, Slot], Callable[..., None]] | None:
        """Return what takes the snapshot, its endpoints, and what writes it; None if there is nothing to write."""
        cache = self._in_use()
        if cache is None or cache.index.is_empty or not self._is_ours:
            return None
        engines: dict[str, str] = {}
        slots: dict[str, Slot] = {}
        for candidate in self._pool.everyone():
            known = identity(self._pool.engine(candidate.address))
            if known is not None:
                engines[candidate.address], slots[candidate.address] = known, candidate.slot
        builder, written_s, tiers = SnapshotBuilder(cache.index, self._clock()), self._now_s(), tiers_of(cache)
        nameless = len(self._pool.everyone()) - len(engines)
        self._begun += 1
        number = self._begun

        def write(level: int = logging.INFO) -> None:
            index, path = builder.snapshot(), self._path
            try:
                with self._writing:
                    if number < self._written:
                        return  # a later one was faster
                    size = index_file.write(path, SavedIndex(written_s, tiers, engines, index))
                    self._written = number
            except SnapshotError as error:
                self._writes["failed"] += 1
                if str(error) != self._logged_failure:  # once a minute would be too often
                    self._logged_failure = str(error)
                    log.warning("index snapshot %s is not written: it %s", path, error)
                return
            self._writes["written"] += 1
            self._logged_failure = ""
            log.log(
                level,
                "index snapshot %s: %s of %s written, %d bytes%s",
                path, counted(index.blocks, "block"), counted(len(index.endpoints), "endpoint"), size,
                f"; {counted(nameless, 'endpoint')} did not say when the engine began" if nameless else "",
            )  # fmt: skip

        return builder, slots, write

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_index_snapshot_endpoints",
            "Endpoints that were in the snapshot read at start, by what became of what they held.",
            ("result",),
            [((fate.value,), self._fates[fate]) for fate in Fate],
        )
        yield Reading(
            "tierwise_index_snapshot_restored_blocks",
            "(block, endpoint) pairs restored from the snapshot at start.",
            (),
            [((), self._blocks)],
        )
        yield Reading(
            "tierwise_index_snapshot_writes",
            "Times that the snapshot was to be written, by what came of it.",
            ("result",),
            [((result,), count) for result, count in self._writes.items()],
            counter=True,
        )

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Do nothing: the endpoint's engine is not known yet."""

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Give up the part of a removed endpoint."""
        if address in self._waiting:
            self._settle(address, Fate.GONE)

    def engine_reported(self, candidate: Candidate) -> None:
        """Restore the endpoint's part, if its engine is the same as before."""
        kept, cache, address = self._kept, self._in_use(), candidate.address
        if address not in self._waiting or kept is None:
            return
        if cache is None or cache is not self._cache:  # the configuration has changed
            self._settle_all()
            return
        engine = identity(self._pool.engine(address))
        if engine is None:
            return
        if engine != kept.engines.get(address):
            self._settle(address, Fate.ANOTHER_ENGINE)
            return
        taken_s = self._clock() - max(0.0, self._now_s() - kept.written_s)
        self._blocks += restore(cache.index, candidate.slot, kept.index, address, taken_s)
        self._settle(address, Fate.RESTORED)
        cache.engine_reported(candidate)  # the engine may have evicted blocks in the meantime

    def _settle(self, address: str, fate: Fate) -> None:
        self._waiting.remove(address)
        self._fates[fate] += 1
        if not self._waiting:
            self._kept = None
            results = ", ".join(f"{count} {fate.value}" for fate, count in self._fates.items())
            log.info("index snapshot: %s restored; endpoints: %s", counted(self._blocks, "block"), results)

    def _settle_all(self) -> None:
        for address in list(self._waiting):
            self._settle(address, Fate.UNKNOWN_ENGINE if address in self._pool else Fate.GONE)


def tiers_of(cache: PrefixCache) -> tuple[str, ...]:
    """Return the names of the index's tiers, in order."""
    return tuple([producer.tier.value for producer in cache.producers])


def check_fits(kept: SavedIndex, cache: PrefixCache) -> None:
    """Check that the snapshot has the same tiers and blocks as the index. Raises: SnapshotError."""
    index, tiers = kept.index, tiers_of(cache)
    if (kept.tiers, index.tiers, index.block_tokens) != (tiers, cache.index.tiers, cache.index.block_tokens):
        raise SnapshotError(
            f"is of the tiers {', '.join(kept.tiers)} and blocks of {index.block_tokens} tokens, and now there are "
            f"{', '.join(tiers)} and {cache.index.block_tokens}"
        )


async def in_thread(work: Callable[[], None]) -> None:
    """Do ``work`` in a daemon thread, which does not delay the end of the process: a disk may not respond."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():  # the caller still waits
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        failure: Exception | None = None
        try:
            work()
        except Exception as error:  # passed to the caller
            failure = error
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            loop.call_soon_threadsafe(settle, failure)

    threading.Thread(target=run, name="index-snapshot", daemon=True).start()
    await done


async def finish_in_time(write: Callable[[], None]) -> None:
    """Call ``write`` in a thread, and give up after ``WRITE_S``."""
    try:
        async with asyncio.timeout(WRITE_S):  # not wait_for, which can lose a cancellation in Python 3.11
            await in_thread(write)
    except TimeoutError:
        log.warning("the index snapshot is not written after %g s, and is left", WRITE_S)
    except Exception:  # the rest of the shutdown goes on
        log.exception("the index snapshot is not written")
