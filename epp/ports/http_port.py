"""Opens and closes a port that serves HTTP."""

from __future__ import annotations

import ssl
from typing import cast

from aiohttp import web

from epp.ports.door import Door, Factory, Report, open_door, unreported


class HttpPort:
    """A port that serves HTTP. Owner: the event loop that opened it."""

    def __init__(self, report: Report = unreported) -> None:
        """``report`` is called for each connection that fails before its first request."""
        self._report = report
        self._runner: web.AppRunner | None = None
        self._door: Door | None = None

    async def open(self, app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Serve ``app`` and return the port, which is a free one for 0. Raises: OSError if the port cannot be bound."""
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            factory = cast("Factory", runner.server)
            self._door = await open_door(factory, host, port, tls=tls, report=self._report, http1=True)
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        return self._door.port

    async def close(self) -> None:
        """Close the port and every connection. Closing twice is no error."""
        if self._door is not None:
            self._door.close()
            self._door.abandon()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
