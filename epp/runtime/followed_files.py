"""Files that are followed as they change: lists of endpoints, configurations, certificates.

Files change in many ways: by a rename into place, by a symbolic link that is turned to another folder (Kubernetes'
ConfigMaps and Secrets), or by a rewrite in place, on file systems with and without notifications. A notification is
therefore only a hint to compare, as is each second without one; a change is a file behind the path that differs from
the one before.
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
"""Files are read once they have not changed for ``SETTLE_S``, since a list that is half written is a valid list, too.
They are compared ``SETTLE_LOOKS`` times at most. Guesses."""


class _Version(NamedTuple):
    """Identifies the file behind a path; two versions are equal only if nothing was written in between."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


_Versions: TypeAlias = tuple[_Version | None, ...]


class FollowedFiles:
    """One file, or several that belong together. Owner: the event loop.

    A reader calls ``seen`` before it reads, so that a file that changes during the reading counts as changed.
    """

    def __init__(self, *paths: Path, look_every_s: float = LOOK_EVERY_S) -> None:
        self.paths = paths
        self._look_every_s = look_every_s
        self._seen: _Versions = ()
        self._stopping = asyncio.Event()

    def seen(self) -> None:
        """Take the files as they are now as unchanged."""
        self._seen = self._versions()

    def stop(self) -> None:
        """End ``changes`` soon, not at once: a thread waits for the notifications, and it cannot be cancelled."""
        self._stopping.set()

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever a file differs from when it was last ``seen``, once it has stayed the same for a moment."""
        async for _ in self._hints():
            if await self._settled() != self._seen:
                yield

    async def _hints(self) -> AsyncIterator[None]:
        """Yield whenever a file may have changed."""
        while not self._stopping.is_set():
            try:
                async with aclosing(self._notifications()) as notifications:
                    async for _ in notifications:
                        yield
            except OSError:  # no such folder, or the system's limit of watches is reached
                await asyncio.sleep(self._look_every_s)
            yield

    async def _notifications(self) -> AsyncGenerator[None]:
        """Yield at changes in the folders of the files, and regularly without one, until these are other folders."""
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
        """Return the files' versions once they no longer change."""
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
        """Return the folder of each path, and of the file that it leads to through symbolic links."""
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
