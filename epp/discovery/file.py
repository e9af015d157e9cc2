"""Endpoints from a file, followed as it changes.

Files change in many ways: a rename into place, a symbolic link turned to another folder (Kubernetes' ConfigMaps), a
rewrite in place, on file systems with and without notifications. So a notification is a hint to look, as is the passing
of a second; what decides is whether the file behind the path is another one than before. A file that cannot be used
leaves the endpoints as they are.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from watchfiles import awatch

from epp.discovery.listing import Listing, read_listing
from epp.errors import ConfigError
from epp.pool import Endpoint, Pool
from epp.resolve import resolve
from epp.telemetry.gauges import Reading

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
LOOK_EVERY_S = 1.0
SETTLE_S, SETTLE_LOOKS = 0.05, 20
"""A file is read once it has not changed for this long: half of a list is a list, too. It is looked at this often at
most. A guess."""


class _Version(NamedTuple):
    """Which file lies behind a path; equal only if nothing was written."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


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
        self._look_every_s = look_every_s
        self._version: _Version | None = None
        self._resolved: dict[str, str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

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
            self._watcher = asyncio.get_running_loop().create_task(self._follow(), name="file-discovery")

    async def stop(self) -> None:
        """Follow no more."""
        self._stopping.set()  # what waits for notifications is a thread, and cannot be cancelled
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        for name, text, count in (
            ("tierwise_discovery_reloads", "Lists of endpoints taken from the file.", self.reloads),
            ("tierwise_discovery_errors", "Changes of the file that could not be used.", self.errors),
        ):
            yield Reading(name, text, (), [((), count)], counter=True)

    async def _follow(self) -> None:
        async for _ in self._hints():
            try:
                if await self._settled() != self._version:
                    await self._load()
            except Exception as error:  # no file must end the picker
                self._refused(error)

    async def _hints(self) -> AsyncIterator[None]:
        """Something may have changed."""
        while True:
            try:
                async with aclosing(self._notifications()) as notifications:
                    async for _ in notifications:
                        yield
            except OSError:  # no such folder, or no more watches to be had
                await asyncio.sleep(self._look_every_s)
            yield

    async def _notifications(self) -> AsyncGenerator[None]:
        """Changes in the folders that lead to the file, until those are others; and every now and then without one."""
        folders = _folders(self._path)
        changes = awatch(
            *folders,
            watch_filter=None,
            recursive=False,
            stop_event=self._stopping,
            debounce=200,
            step=20,
            rust_timeout=int(self._look_every_s * 1000),
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        async with aclosing(changes):
            async for _ in changes:
                yield
                if _folders(self._path) != folders:
                    return

    async def _settled(self) -> _Version | None:
        """The file's version once it stays; None while there is no file."""
        version = _version(self._path)
        for _ in range(SETTLE_LOOKS):
            if version == self._version:
                return version
            await asyncio.sleep(SETTLE_S)
            before, version = version, _version(self._path)
            if version == before:
                break
        return version

    async def _load(self) -> None:
        """Take the file's list. Raises: ConfigError; the endpoints are as before then."""
        self._version = _version(self._path)
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


def _version(path: Path) -> _Version | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return _Version(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _folders(path: Path) -> set[Path]:
    """The folder of ``path``, and that of the file it leads to through symbolic links."""
    try:
        return {path.parent, path.resolve(strict=True).parent}
    except (OSError, RuntimeError):
        return {path.parent}
