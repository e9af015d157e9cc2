"""Endpoints from a file, followed as it changes. A file that cannot be used leaves the endpoints as they are."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from epp.discovery.listing import Listing, read_listing
from epp.errors import ConfigError
from epp.metrics.gauges import Reading
from epp.pool.pool import Endpoint, Pool
from epp.ports.resolve import resolve
from epp.runtime.background import Chore
from epp.runtime.followed_files import LOOK_EVERY_S, FollowedFiles
from epp.runtime.logs import counted

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
MAX_SKIPPED_LOGGED = 20
ASK_AGAIN_S = 5.0
"""Time between two lookups of host names that do not resolve yet, since engines and their names may come up after the
file. A guess.
"""


class FileDiscovery:
    """Keeps a pool equal to the list in a file. Owner: the event loop."""

    def __init__(
        self,
        pool: Pool,
        path: Path,
        *,
        watch: bool,
        look_every_s: float = LOOK_EVERY_S,
        ask_again_s: float = ASK_AGAIN_S,
        resolve: Callable[[Sequence[str]], Awaitable[Sequence[str]]] = resolve,
    ) -> None:
        self.loaded = False
        """Whether a list was ever loaded; before that, no request should be served."""
        self.trouble: str | None = None
        """Why the file in its current form cannot be used; None when it is in use."""
        self.reloads = 0
        self.errors = 0
        self._path = path
        self._pool = pool
        self._watch = watch
        self._file = FollowedFiles(path, look_every_s=look_every_s)
        self._ask_again_s = ask_again_s
        self._resolve = resolve
        self._resolved: dict[str, str] = {}
        self._listing = Listing((), ())
        self._skipped: list[str] = []
        self._unknown = 0  # hosts whose names do not resolve yet
        self._using = asyncio.Lock()
        self._chores: list[Chore] = []

    async def start(self) -> None:
        """Load the file's list, and follow the file if ``watch`` was set.

        Raises: ConfigError if there is no usable list and the file is not followed.
        """
        try:
            await self._load()
        except ConfigError as error:
            if not self._watch:
                raise
            self._refused(error)
        if self._watch:
            self._chores.append(Chore("file-discovery", self._follow))
        self._chores.append(Chore("file-discovery-names", self._ask_again))

    async def stop(self) -> None:
        """Stop following the file."""
        self._file.stop()
        for chore in self._chores:
            await chore.stop()
        self._chores.clear()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        for name, text, count in (
            ("tierwise_discovery_reloads", "Lists of endpoints taken from the file.", self.reloads),
            ("tierwise_discovery_errors", "Changes of the file that could not be used.", self.errors),
        ):
            yield Reading(name, text, (), [((), count)], counter=True)
        current = float(self.trouble is None and self.loaded)
        for name, text, value in (
            ("tierwise_discovery_current", "1 while the endpoints in use are those of the file.", current),
            ("tierwise_discovery_skipped_entries", "Entries of the list in use that are left out.", len(self._skipped)),
        ):
            yield Reading(name, text, (), [((), value)])

    async def _follow(self) -> None:
        async for _ in self._file.changes():
            try:
                await self._load()
            except Exception as error:  # no file may end the picker
                self._refused(error)

    async def _load(self) -> None:
        """Load the file's list. Raises: ConfigError, with the endpoints unchanged."""
        async with self._using:
            self._file.seen()
            self._listing = await asyncio.to_thread(self._read)  # a large list takes longer than a decision may wait
            await self._use()
            self.reloads += 1
            endpoints, skipped = counted(len(self._pool), "endpoint"), counted(len(self._skipped), "entry", "entries")
            log.info("%s: %s, %s skipped", self._path, endpoints, skipped)

    async def _use(self) -> None:
        """Put the list into the pool. Raises: ConfigError, with the endpoints unchanged."""
        endpoints, skipped = await self._with_addresses(self._listing)
        if self._listing.endpoints and not endpoints:
            raise ConfigError(f"{self._path}: no host is known; the first: {skipped[-1]}")
        self._pool.replace(endpoints)
        self.loaded, self.trouble = True, None
        if skipped != self._skipped:
            for sentence in skipped[:MAX_SKIPPED_LOGGED]:
                log.warning("%s: skipped: %s", self._path, sentence)
            if len(skipped) > MAX_SKIPPED_LOGGED:
                log.warning("%s: skipped: %d more", self._path, len(skipped) - MAX_SKIPPED_LOGGED)
        self._skipped = skipped

    async def _ask_again(self) -> None:
        """Look up hosts again that did not resolve."""
        while True:
            await asyncio.sleep(self._ask_again_s)
            if not self._unknown:
                continue
            async with self._using:
                before = self._unknown
                with suppress(ConfigError):  # logged when the file was read
                    await self._use()
                if self._unknown < before:
                    log.info("%s: %d endpoints; hosts are known now", self._path, len(self._pool))

    def _read(self) -> Listing:
        """Read and parse the file. Raises: ConfigError if that fails."""
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise ConfigError(f"{self._path}: not a regular file")
            with self._path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror or error}") from error
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"{self._path}: larger than {MAX_FILE_BYTES:,} bytes; split the pool")
        try:
            return read_listing(raw)
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from error

    async def _with_addresses(self, listing: Listing) -> tuple[list[Endpoint], list[str]]:
        """Return the endpoints with host names resolved, and a sentence for each that cannot be used.

        A name that resolved before and does not now keeps its address: name servers fail more often than hosts move.
        """
        found: dict[str, Endpoint] = {}
        skipped, unknown = list(listing.skipped), 0
        for endpoint, answer in zip(
            listing.endpoints,
            await asyncio.gather(*(self._resolve([e.address]) for e in listing.endpoints), return_exceptions=True),
            strict=True,
        ):
            if isinstance(answer, BaseException):
                if endpoint.address not in self._resolved:
                    unknown += 1
                    skipped.append(str(answer))
                    continue
            else:
                self._resolved[endpoint.address] = answer[0]
            address = self._resolved[endpoint.address]
            if address in found:
                skipped.append(f"{endpoint.address} is {address}, which is listed already")
                continue
            found[address] = msgspec.structs.replace(endpoint, address=address)
        self._resolved = {
            e.address: self._resolved[e.address] for e in listing.endpoints if e.address in self._resolved
        }
        self._unknown = unknown
        return list(found.values()), skipped

    def _refused(self, error: Exception) -> None:
        self.errors += 1
        self.trouble = str(error) or type(error).__name__
        expected = isinstance(error, ConfigError)
        kept = "the endpoints stay as they are" if self.loaded else "nobody is served until there is a list"
        log.error("%s; %s", error, kept, exc_info=None if expected else error)
