"""What a node asks of the API server: requests, and copies of kinds that a watch keeps."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp

Object = dict[str, Any]
MERGE = "application/strategic-merge-patch+json"
WATCH_S = 300
AGAIN_S = 0.2
LARGEST_BYTES = 8 * 2**20


class Refused(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class Api:
    """Requests with an administrator's token."""

    def __init__(self, url: str, authority: str, token: str) -> None:
        self._url, self._authority, self._token = url, authority, token

    def session(self) -> aiohttp.ClientSession:
        """Return a new session, whose certificate authority is read now."""
        trust = ssl.create_default_context(cafile=self._authority)
        return aiohttp.ClientSession(
            self._url,
            headers={"Authorization": f"Bearer {self._token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            read_bufsize=LARGEST_BYTES,
        )

    async def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Object:
        """Return the answer. Raises: Refused, aiohttp.ClientError."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content}
        async with self.session() as session, session.request(method, path, data=data, headers=headers) as response:
            text = await response.text()
            if response.status >= 300:
                raise Refused(response.status, text)
            answer: Object = json.loads(text)
            return answer


class Copy:
    """All objects of one kind by namespace and name, as a watch has them; ``changed`` is called for each change."""

    def __init__(self, api: Api, path: str, changed: Callable[[str, Object], None]) -> None:
        self._api, self._path, self._changed = api, path, changed
        self.objects: dict[tuple[str, str], Object] = {}
        self.filled = asyncio.Event()

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one object, or None."""
        return self.objects.get((namespace, name))

    async def follow(self) -> None:
        """List and watch for ever, over failures of the API server."""
        while True:
            try:
                async with self._api.session() as session:
                    version = await self._list(session)
                    await self._watch(session, version)
            except (aiohttp.ClientError, TimeoutError, OSError, Refused):
                pass
            await asyncio.sleep(AGAIN_S)

    async def _list(self, session: aiohttp.ClientSession) -> str:
        async with session.get(self._path) as response:
            if response.status != 200:
                raise Refused(response.status, await response.text())
            listed = await response.json()
        new = {self._key(one): one for one in listed["items"]}
        gone = [one for key, one in self.objects.items() if key not in new]
        self.objects = new
        for one in gone:
            self._changed("DELETED", one)
        for one in new.values():
            self._changed("MODIFIED", one)
        self.filled.set()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    async def _watch(self, session: aiohttp.ClientSession, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_S)}
        unlimited = aiohttp.ClientTimeout(total=None, sock_read=WATCH_S + 30)
        async with session.get(self._path, params=query, timeout=unlimited) as response:
            if response.status != 200:
                raise Refused(response.status, await response.text())
            while line := await response.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                one = event["object"]
                if event["type"] == "DELETED":
                    self.objects.pop(self._key(one), None)
                else:
                    self.objects[self._key(one)] = one
                self._changed(event["type"], one)

    @staticmethod
    def _key(one: Object) -> tuple[str, str]:
        return one["metadata"].get("namespace", ""), one["metadata"]["name"]
