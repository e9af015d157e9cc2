"""The file of an index snapshot between two runs: written whole or not at all, and read only if the picker wrote it.

    magic (16 bytes), version (2), digest of the rest (16), msgpack

It holds the secret key of the index's hashes, so only its owner may read it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from scorers.index.snapshot import Snapshot, faults

MAGIC = b"tierwise index\n\0"
VERSION = 2
_VERSION_BYTES, _DIGEST_BYTES = 2, 16
_HEAD_BYTES = len(MAGIC) + _VERSION_BYTES + _DIGEST_BYTES
_UNFINISHED = ".unfinished"
MAX_FILE_BYTES = 256 << 20
"""Maximum size of a file that is written or read: a million blocks take 9 MB."""
MAX_AGE_S = 3600.0
"""Maximum age of a snapshot that is used. A guess: after that, requests of other pickers have replaced the blocks."""
SLACK_S = 60.0
"""How far the clock may have been set back since the snapshot was written."""


class SnapshotError(Exception):
    """Raised if the file cannot be used. The message is the predicate of a sentence that begins with its name."""


class NotOurs(SnapshotError):
    """Raised if the file was not written by the picker, and so must not be overwritten."""


class SavedIndex(msgspec.Struct, array_like=True, frozen=True):
    """The contents of the file."""

    written_s: float
    """The Unix time at which the snapshot was taken."""
    tiers: tuple[str, ...]
    """The names of the index's tiers, in order."""
    engines: dict[str, str]
    """The identity of each endpoint's engine, by address. Endpoints whose engine is unknown are left out."""
    index: Snapshot


def write(path: Path, kept: SavedIndex, most_bytes: int = MAX_FILE_BYTES) -> int:
    """Replace the file at ``path``, so that only its owner can read it; return its size in bytes.

    Raises: SnapshotError; the old file is unchanged then.
    """
    payload = msgspec.msgpack.encode(kept)
    size = _HEAD_BYTES + len(payload)
    if size > most_bytes:
        raise SnapshotError(f"would have {size} bytes, and {most_bytes} are the limit")
    check_ours(path)
    beside = unfinished(path, os.uname().nodename, os.getpid())
    try:
        _replace(path, beside, MAGIC + VERSION.to_bytes(_VERSION_BYTES, "little") + _digest(payload), payload)
    except OSError as error:
        raise SnapshotError(f"cannot be written: {error.strerror or error}") from error
    return size


def _replace(path: Path, beside: Path, head: bytes, payload: bytes) -> None:
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def impossible(path: Path) -> str | None:
    """Return why no snapshot can be written at ``path``, and what to do; None if a trial file could be made."""
    folder = path.parent
    if path.is_dir():
        return "is a folder; name a file in it"
    if not folder.exists():
        return f"there is no folder {folder}; make it, or name another file"
    if not folder.is_dir():
        return f"{folder} is no folder; name another file"
    beside = unfinished(path, os.uname().nodename, os.getpid())
    try:
        beside.unlink(missing_ok=True)
        beside.touch(0o600, exist_ok=False)
        beside.unlink()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # there may be room later
        return f"no file can be made in {folder}: {error.strerror}; name a file in another folder"
    return None


def read(path: Path, now_s: float) -> SavedIndex | None:
    """Return the contents of the file at ``path``, or None if there is no file. Raises: SnapshotError."""
    data = _bytes_of(path)
    if data is None:
        return None
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + _VERSION_BYTES], "little")
    if version != VERSION:
        raise SnapshotError(f"is of version {version}, and this is version {VERSION}")
    payload = memoryview(data)[_HEAD_BYTES:]
    if _digest(payload) != data[_HEAD_BYTES - _DIGEST_BYTES : _HEAD_BYTES]:
        raise SnapshotError("is damaged: its checksum is wrong")
    try:
        kept = msgspec.msgpack.decode(payload, type=SavedIndex)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"is damaged: {error}") from error
    age_s = now_s - kept.written_s
    if not -SLACK_S <= age_s <= MAX_AGE_S:
        raise SnapshotError(f"is {age_s:.0f} s old, and after {MAX_AGE_S:.0f} s nothing of it is believed")
    for fault in faults(kept.index):
        raise SnapshotError(f"is damaged: {fault}")
    return kept


def unfinished(path: Path, node: str, pid: int) -> Path:
    """Return the path of the temporary file that a process writes first. The node's name is part of it, since processes
    in containers may have the same id."""
    return path.with_name(f".{path.name}.{node}.{pid}{_UNFINISHED}")


def tidy(path: Path, now_s: float) -> None:
    """Remove the temporary files that crashes have left beside ``path``, if they are too old to be in use."""
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            ours = entry.name.startswith(f".{path.name}.") and entry.name.endswith(_UNFINISHED)
            if ours and entry.stat(follow_symlinks=False).st_mtime < now_s - MAX_AGE_S:
                Path(entry.path).unlink()


def check_ours(path: Path) -> None:
    """Check that the file at ``path`` is empty, absent, or a snapshot. Raises: NotOurs."""
    _bytes_of(path, most=len(MAGIC))


def _bytes_of(path: Path, most: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the first ``most`` bytes of a snapshot; None for an empty file or no file. Raises: SnapshotError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotOurs("is a symbolic link, and is left alone; name the file itself") from error
        raise SnapshotError(f"cannot be read: {error.strerror}") from error
    try:
        about = os.fstat(handle)
        _check_kind(about)
        if about.st_size == 0:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(most)
    except OSError as error:
        raise SnapshotError(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if not data.startswith(MAGIC):
        raise NotOurs("is not an index snapshot, and is left alone; name another file")
    if about.st_mode & stat.S_IRWXO:
        raise SnapshotError(f"may be read or written by everybody (mode {stat.S_IMODE(about.st_mode):o})")
    return data


def _check_kind(about: os.stat_result) -> None:
    """Check that it is a regular file, and not larger than a snapshot. Raises: NotOurs."""
    if not stat.S_ISREG(about.st_mode):
        raise NotOurs("is no file")
    if about.st_size > MAX_FILE_BYTES:
        raise NotOurs(f"has {about.st_size} bytes, and {MAX_FILE_BYTES} are the limit")


def _digest(payload: bytes | memoryview) -> bytes:
    return blake2b(payload, digest_size=_DIGEST_BYTES).digest()
