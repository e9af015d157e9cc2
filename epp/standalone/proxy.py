"""Keeps an Envoy running, from its first listener to its last answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap

from epp.runtime.background import Chore
from epp.runtime.logs import counted
from epp.server.proxy_admin import ProxyAdmin
from epp.standalone.binary import StartError, version
from epp.standalone.bootstrap import bootstrap, written
from epp.standalone.process import TetheredProcess
from epp.standalone.settings import ProxySettings

log = logging.getLogger(__name__)

READY_WITHIN_S = 30.0
LIVED_LONG_S = 60.0
"""If a proxy lived this long, its start was not the cause of its death, and the next restart is quick again."""


def restart_delay_s(deaths: int) -> float:
    """Return the delay before a restart after ``deaths`` quick deaths in a row (at least 1): 0.1 s doubling to 5 s."""
    return min(5.0, 0.1 * 2.0 ** min(deaths - 1, 10))


@dataclass(frozen=True, slots=True)
class ProxyStatistics:
    """Counts since ``start``, and the current process."""

    pid: int | None
    restarts: int


class Proxy:
    """One Envoy process, restarted when it dies.

    Invariant: between ``start`` and ``stop`` either a process runs or a restart is in progress. Owned by the event
    loop.
    """

    def __init__(
        self,
        binary: Path,
        settings: ProxySettings,
        folder: Path,
        *,
        verbose: bool = False,
        configure: Callable[[ProxySettings], Bootstrap] = bootstrap,
    ) -> None:
        self.settings = settings
        self._configure = configure
        self._admin = ProxyAdmin(settings.admin_port)
        self._config = folder / "envoy.json"
        self._binary = binary
        self._command = [str(binary), "--config-path", str(self._config), "--disable-hot-restart"]
        self._command += ["--log-level", "info" if verbose else "warning"]
        self._process: TetheredProcess | None = None
        self._supervision: Chore | None = None
        self._restarts = 0

    def statistics(self) -> ProxyStatistics:
        """Return a snapshot of the statistics."""
        return ProxyStatistics(self._process.pid if self._process else None, self._restarts)

    async def start(self) -> None:
        """Return once clients can connect.

        Raises: StartError with the end of Envoy's log when it ends instead, or is not ready in time.
        """
        await self._launch()
        self._supervision = Chore("supervise-envoy", self._supervise)

    async def stop(self, drain_timeout_s: float, accepting_s: float = 0.0) -> None:
        """Drain the proxy and end its process.

        Connections are accepted for ``accepting_s`` more, while keep-alive ones end after their current answers. Then
        requests in progress have at most ``drain_timeout_s`` to end.
        """
        try:
            if accepting_s and self._process is not None:
                await self._admin.let_clients_leave()
                await asyncio.sleep(accepting_s)
            await self._leave_dead()
            if self._process is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(drain_timeout_s):
                        await self._admin.drain()
                        await self._admin.until_idle()
        finally:
            await self._leave_dead()
            await self._end()

    async def _leave_dead(self) -> None:
        """Stop restarting the process. A second call does nothing."""
        if self._supervision is not None:
            await self._supervision.stop()

    async def _launch(self) -> None:
        """Start the process and wait until it is ready. Raises: StartError, with no process left."""
        try:
            self._config.parent.mkdir(parents=True, exist_ok=True)  # each time, since a cleaner may have removed it
            self._config.write_text(written(self._configure(self.settings), self.settings))
            self._process = process = await TetheredProcess.start(self._command)
        except OSError as error:  # such as a full disk, or no free process
            raise StartError(f"Envoy cannot be started: {error}") from error
        ended = asyncio.ensure_future(process.wait())
        ready = asyncio.ensure_future(self._admin.until_ready())
        try:
            await asyncio.wait({ended, ready}, timeout=READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not ended.done():
                return
            why = "ended at once" if ended.done() else f"was not ready within {READY_WITHIN_S:g} s"
        except BaseException:
            await self._end()
            raise
        finally:
            ended.cancel()
            ready.cancel()
        await self._end()
        what = await version(self._binary)
        raise StartError(f"Envoy {why}; {self._binary} is {what}; the end of its log:\n{process.tail()}")

    async def _supervise(self) -> None:
        deaths = 0
        clock = asyncio.get_running_loop().time
        while True:
            if (process := self._process) is not None:
                began = clock()
                status = await process.wait()
                self._process = None
                if clock() - began > LIVED_LONG_S:
                    deaths = 0
                log.error("Envoy ended with status %d; the end of its log:\n%s", status, process.tail())
            deaths = await self._restart(deaths)

    async def _restart(self, deaths: int) -> int:
        """Start a new process, with as many tries as it takes, and return the deaths in a row until then."""
        while True:
            deaths += 1
            delay_s = restart_delay_s(deaths)
            log.warning("restarting Envoy in %.1f s", delay_s)
            await asyncio.sleep(delay_s)
            self._restarts += 1
            try:
                await self._launch()
            except StartError as error:
                log.error("%s", error)  # noqa: TRY400 - the sentence has all information, and the next try follows
            else:
                log.warning("Envoy serves again after %s", counted(self._restarts, "restart"))
                return deaths

    async def _end(self) -> None:
        if self._process is not None:
            await self._process.end()
            self._process = None
