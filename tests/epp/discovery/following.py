"""A pool that follows pods, as the tests look at it: behind a small API server of theirs, and behind the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from epp.discovery.base import Discovery
from epp.kube.client import Client
from epp.pool.pool import Pool

PATIENCE_S = 60


class Following:
    """A pool, and the discovery that keeps it equal to the pods."""

    pool: Pool
    client: Client
    discovery: Discovery

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        async with self.client:
            await self.discovery.start()
            try:
                yield
            finally:
                await self.discovery.stop()

    def addresses(self) -> list[str]:
        return sorted(candidate.address for candidate in self.pool.candidates())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)

    async def shows(self, *addresses: str) -> None:
        await self.until(lambda: self.discovery.loaded and self.addresses() == sorted(addresses))
