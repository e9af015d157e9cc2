"""Queries and commands to the proxy, over its admin interface."""

from __future__ import annotations

import asyncio
import http.client

ANSWER_WITHIN_S = 2.0
ASKED_EVERY_S = 0.02
ACTIVE_REQUESTS = "http.clients.downstream_rq_active"


class ProxyAdmin:
    """A client of Envoy's admin interface at ``port``. Without an answer, values are None and nothing is raised."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def until_ready(self) -> None:
        """Return once the proxy has its endpoints and listens."""
        while not await self.ready():  # noqa: ASYNC110 - polling is the only way
            await asyncio.sleep(ASKED_EVERY_S)

    async def until_idle(self) -> None:
        """Return once no client's request is in progress, or the proxy does not answer."""
        while await self.active_requests():  # noqa: ASYNC110 - polling is the only way
            await asyncio.sleep(ASKED_EVERY_S)

    async def ready(self) -> bool:
        """Return True if the proxy has its endpoints and listens."""
        return await self._ask("GET", "/ready") is not None

    async def active_requests(self) -> int | None:
        """Return the number of clients' requests in progress; None if the proxy does not answer."""
        text = await self._ask("GET", f"/stats?filter=^{ACTIVE_REQUESTS}$")
        _, colon, value = (text or "").partition(": ")
        return int(value) if colon else None

    async def let_clients_leave(self) -> bool:
        """Have keep-alive connections ended after their current answers, and return whether the proxy has heard it.

        New connections are still accepted.
        """
        return await self._ask("POST", "/healthcheck/fail") is not None

    async def drain(self) -> None:
        """Accept no new connections, and end keep-alive connections after their current answers."""
        await self.let_clients_leave()
        await self._ask("POST", "/drain_listeners")

    async def _ask(self, method: str, path: str) -> str | None:
        return await asyncio.to_thread(self._exchange, method, path)

    def _exchange(self, method: str, path: str) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_WITHIN_S)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return None
        else:
            return body if response.status == http.HTTPStatus.OK else None
        finally:
            connection.close()
