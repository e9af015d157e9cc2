"""Files that are followed as they change: lists of endpoints, configurations, certificates.

Files change in many ways: a rename into place, a symbolic link turned to another folder (Kubernetes' ConfigMaps and
Secrets), a rewrite in place, on file systems with and without notifications. So a notification is a hint to look, as is
the passing of a second; what decides is whether the file behind the path is another one than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple, TypeAlias

from watchfiles import awatch

LOOK_EVERY_S = 1.0
SETTLE_S, SETTLE_LOOKS = 0.05, 20
"""Files are read once they have not changed for this long: half of a list is a list, too. They are looked at this often
at most. A guess."""


class _Version(NamedTuple):
    """Which file lies behind a path; equal only if nothing was written."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


_Versions: TypeAlias = tuple[_Version | None, ...]


class FollowedFiles:
    """One file, or several that belong together. Owner: the event loop.

    Whoever reads them calls ``seen`` first, so that what changes while they are read is a change.
    """

    def __init__(self, *paths: Path, look_every_s: float = LOOK_EVERY_S) -> None:
        self.paths = paths
        self._look_every_s = look_every_s
        self._seen: _Versions = ()
        self._stopping = asyncio.Event()

    def seen(self) -> None:
        """The files as they are now are no change any more."""
        self._seen = self._versions()

    def stop(self) -> None:
        """End ``changes`` soon: what waits for notifications is a thread, and cannot be cancelled."""
        self._stopping.set()

    async def changes(self) -> AsyncIterator[None]:
        """Yields whenever a file is another than when last ``seen``, and stays as it is for a moment."""
        async for _ in self._hints():
            if await self._settled() != self._seen:
                yield

    async def _hints(self) -> AsyncIterator[None]:
        """Something may have changed."""
        while not self._stopping.is_set():
            try:
                async with aclosing(self._notifications()) as notifications:
                    async for _ in notifications:
                        yield
            except OSError:  # no such folder, or no more watches to be had
                await asyncio.sleep(self._look_every_s)
            yield

    async def _notifications(self) -> AsyncGenerator[None]:
        """Changes in the folders that lead to the files, until those are others; and every now and then without one."""
        folders = self._folders()
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
                if self._folders() != folders:
                    return

    async def _settled(self) -> _Versions:
        """The files' versions once they stay."""
        versions = self._versions()
        for _ in range(SETTLE_LOOKS):
            if versions == self._seen:
                return versions
            await asyncio.sleep(SETTLE_S)
            before, versions = versions, self._versions()
            if versions == before:
                break
        return versions

    def _versions(self) -> _Versions:
        return tuple([_version(path) for path in self.paths])

    def _folders(self) -> set[Path]:
        """The folder of each path, and that of the file it leads to through symbolic links."""
        folders = set()
        for path in self.paths:
            folders.add(path.parent)
            try:
                folders.add(path.resolve(strict=True).parent)
            except (OSError, RuntimeError):
                continue
        return folders


def _version(path: Path) -> _Version | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return _Version(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
