"""The floor of what following costs: aiohttp and TLS read the same answers, and nothing decodes them."""

from __future__ import annotations

import asyncio
import re
import ssl
import time

import aiohttp

from benchmarks.kube.objects import CHANGE
from epp.kube.access import Access
from epp.kube.pages import FIRST

HEAD = 2000
"""The metadata of a page is within so many bytes, before its first object."""
_CHANGE = re.compile(rb'"%b":"(\d+)"' % CHANGE.encode())


class Bare:
    """Reads a list in pages, then a watch. A ``Discovery`` without endpoints."""

    def __init__(self, access: Access, selector: str) -> None:
        self.loaded = False
        self.trouble: str | None = None
        self.seen: dict[str, float] = {}
        """When the bytes of each change came. One whose label is cut by the end of a read is left out."""
        self._access, self._selector = access, selector
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to read, without waiting for the list."""
        self._task = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Stop reading, and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _read(self) -> None:
        url = f"{self._access.server}/api/v1/namespaces/default/pods"
        tls = self._access.tls()
        assert isinstance(tls, ssl.SSLContext)
        headers = {**await self._access.headers(renew=False), "Accept-Encoding": "identity"}
        query = {"labelSelector": self._selector, "limit": str(FIRST)}
        connector, forever = aiohttp.TCPConnector(ssl=tls), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=forever) as session:
            while True:
                async with session.get(url, params=query) as response:
                    head = b"".join([part async for part in response.content.iter_any()])[:HEAD]
                if b'"continue":"' not in head:
                    break
                query["continue"] = _field(head, "continue")
            self.loaded = True
            follow = {"labelSelector": self._selector, "watch": "1", "resourceVersion": _field(head, "resourceVersion")}
            async with session.get(url, params=follow) as response:
                async for part in response.content.iter_any():
                    now = time.clock_gettime(time.CLOCK_MONOTONIC)
                    for number in _CHANGE.findall(part):
                        self.seen.setdefault(number.decode(), now)
        self.trouble = "the watch has ended"


def _field(head: bytes, name: str) -> str:
    return head.partition(b'"%b":"' % name.encode())[2].partition(b'"')[0].decode()
