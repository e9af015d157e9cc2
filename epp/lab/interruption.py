"""How SIGINT and SIGTERM end a command that works for a while and then writes its result.

Both end it in order, as KeyboardInterrupt. A result is there completely or not at all: signals are blocked while it is
moved into place, and a folder that was created for it is removed if it stays empty.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from epp.errors import ConfigError

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM})


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt while the context lasts, as Ctrl-C does. For the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block SIGINT and SIGTERM while the context lasts; they are delivered when it ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def result_folder(output: Path) -> Iterator[None]:
    """Create the folder ``output`` before the work starts; created folders that are still empty at the end are removed.

    Raises: ConfigError where nothing can be written there.
    """
    new = [path for path in (output, *output.parents) if not path.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"--output={output}: is a file; name a folder") from error
    except OSError as error:
        raise ConfigError(f"--output={output}: cannot be made: {error.strerror}") from error
    try:
        if not os.access(output, os.W_OK | os.X_OK):
            raise ConfigError(f"--output={output}: nothing can be written there; name another folder")
        yield
    finally:
        for path in new:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
