"""Endpoints from a file, followed as it changes. A file that cannot be used leaves the endpoints as they are."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from epp.chore import Chore
from epp.discovery.listing import Listing, read_listing
from epp.errors import ConfigError
from epp.followed_files import LOOK_EVERY_S, FollowedFiles
from epp.pool import Endpoint, Pool
from epp.resolve import resolve
from epp.telemetry.gauges import Reading

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20


class FileDiscovery:
    """Keeps a pool as a file lists it. Owner: the event loop."""

    def __init__(self, pool: Pool, path: Path, *, watch: bool, look_every_s: float = LOOK_EVERY_S) -> None:
        self.loaded = False
        """Whether a list was ever taken: before, nobody should be served."""
        self.reloads = 0
        self.errors = 0
        self._path = path
        self._pool = pool
        self._watch = watch
        self._file = FollowedFiles(path, look_every_s=look_every_s)
        self._resolved: dict[str, str] = {}
        self._watcher: Chore | None = None

    async def start(self) -> None:
        """Take the file's list, and follow the file if asked to.

        Raises: ConfigError when there is no usable list and nobody waits for one.
        """
        try:
            await self._load()
        except ConfigError as error:
            if not self._watch:
                raise
            self._refused(error)
        if self._watch:
            self._watcher = Chore("file-discovery", self._follow)

    async def stop(self) -> None:
        """Follow no more."""
        self._file.stop()
        if self._watcher is not None:
            await self._watcher.stop()
            self._watcher = None

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        for name, text, count in (
            ("tierwise_discovery_reloads", "Lists of endpoints taken from the file.", self.reloads),
            ("tierwise_discovery_errors", "Changes of the file that could not be used.", self.errors),
        ):
            yield Reading(name, text, (), [((), count)], counter=True)

    async def _follow(self) -> None:
        async for _ in self._file.changes():
            try:
                await self._load()
            except Exception as error:  # no file must end the picker
                self._refused(error)

    async def _load(self) -> None:
        """Take the file's list. Raises: ConfigError; the endpoints are as before then."""
        self._file.seen()
        listing = await asyncio.to_thread(self._read)  # a large list takes longer than a decision may wait
        endpoints, skipped = await self._with_addresses(listing)
        if listing.endpoints and not endpoints:
            raise ConfigError(f"{self._path}: no host is known; the first: {skipped[-1]}")
        self._pool.replace(endpoints)
        self.loaded = True
        self.reloads += 1
        for sentence in skipped:
            log.warning("%s: skipped: %s", self._path, sentence)
        log.info("%s: %d endpoints, %d entries skipped", self._path, len(endpoints), len(skipped))

    def _read(self) -> Listing:
        """Raises: ConfigError."""
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
        """The endpoints with addresses for host names, and a sentence for each that cannot be had.

        A name that was known before and is not now keeps its address: name servers fail more often than hosts move.
        """
        found: dict[str, Endpoint] = {}
        skipped = list(listing.skipped)
        for endpoint, answer in zip(
            listing.endpoints,
            await asyncio.gather(*(resolve([e.address]) for e in listing.endpoints), return_exceptions=True),
            strict=True,
        ):
            if isinstance(answer, BaseException):
                if endpoint.address not in self._resolved:
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
        return list(found.values()), skipped

    def _refused(self, error: Exception) -> None:
        self.errors += 1
        expected = isinstance(error, ConfigError)
        log.error("%s; the endpoints stay as they are", error, exc_info=None if expected else error)
