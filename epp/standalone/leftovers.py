"""The folder that a router keeps for its proxy: locked while the router runs, and removed later if it was killed."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "tierwise-"
OURS = "envoy.json"
"""The file that marks such a folder, from the moment when it is locked; Envoy's configuration replaces it."""


@contextmanager
def kept_from_tidying(folder: Path) -> Iterator[None]:
    """Hold a lock on ``folder``, since cleaners of temporary folders skip locked ones.

    Envoy watches the folder, and would not notice if it were created again.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        (folder / OURS).touch()  # a router that is killed before it has written its configuration leaves the mark
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove the folders in ``parent`` that routers of this user left behind and that are not locked."""
    removed = [folder for folder in sorted(parent.glob(f"{PREFIX}*")) if _is_left(folder) and _remove(folder)]
    for folder in removed:
        log.info("removed %s, which a killed router had left behind", folder)
    return removed


def _is_left(folder: Path) -> bool:
    try:
        status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and (folder / OURS).exists()
    except OSError:
        return False


def _remove(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except OSError:  # it is locked, or was removed in the meantime
        return False
    finally:
        os.close(descriptor)
    return True
