"""One run of another program, which ends with our process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections import deque
from collections.abc import Sequence

from epp.standalone import tether

log = logging.getLogger(__name__)

ENDS_WITHIN_S = 5.0
TAIL_LINES = 20
READ_BYTES = 1 << 16


class TetheredProcess:
    """A child that is dead once ``end`` returns or our process is dead, however it dies. Owned by the event loop.

    It has a session of its own: Ctrl-C in a terminal reaches only our process, so that we can let the child finish its
    work.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._log = asyncio.create_task(self._read_log(), name=f"log-of-{process.pid}")

    @classmethod
    async def start(cls, command: Sequence[str]) -> TetheredProcess:
        """Run ``command``; its last lines on standard error are kept, and all are logged at debug level."""
        tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
        process = await asyncio.create_subprocess_exec(
            *tethered,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id of the program, since the tether replaces itself with the program."""
        return self._process.pid

    def tail(self) -> str:
        """Return the last lines that the program wrote."""
        return "\n".join(self._tail)

    async def wait(self) -> int:
        """Return the exit status once the program has ended and its output was read; negative for a signal."""
        await asyncio.wait({self._log})
        return await self._process.wait()

    async def end(self) -> None:
        """Send SIGTERM, and kill the program if it does not end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await self.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self.wait()

    async def _read_log(self) -> None:
        stream, unfinished = self._process.stderr, ""
        while stream is not None and (read := await stream.read(READ_BYTES)):
            *lines, unfinished = (unfinished + read.decode(errors="replace")).split("\n")
            unfinished = unfinished[-READ_BYTES:]
            for line in lines:
                self._tail.append(line)
                log.debug("envoy: %s", line)
        if unfinished:
            self._tail.append(unfinished)
