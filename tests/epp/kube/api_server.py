"""A small Kubernetes API server for tests: lists in pages, watches with bookmarks, writes, compaction, and faults.

It keeps whole states by version, so that a page of an old list shows the old state, as etcd does. The tests in
``tests/cluster`` run the same cases against the real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from typing_extensions import override

from epp.ports.http_port import HttpPort

Object = dict[str, Any]
Answer = Callable[[web.Request], web.StreamResponse | None]

TOKEN = "a-token"


class Collection:
    """All objects of one kind in one namespace. Owner: the event loop."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, Object] = {}
        self.watches = 0
        """Watches that are open now."""
        self.silent = False
        """Whether watches send nothing any more, as over a half-open connection."""
        self.by_labels = False
        """Whether label selectors of the form ``a=b,c=d`` are applied; labels never change then."""
        self._events: list[tuple[int, str, Object]] = []
        self._oldest = 1
        self._states: dict[int, list[Object]] = {1: []}
        self._changed = asyncio.Condition()
        self._cuts = 0
        self._closing = False

    async def put(self, item: Object) -> None:
        """Create or change an object, which is named by its metadata."""
        name = item["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects else "ADDED"
        await self._record(kind, {**item, "metadata": {"namespace": "default", **item["metadata"]}})

    async def delete(self, name: str) -> None:
        """Delete the object of this name."""
        await self._record("DELETED", self.objects[name])

    async def bookmark(self) -> None:
        """Send a bookmark with the newest version on every watch."""
        await self._send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}})

    async def send(self, change: str, item: Object) -> None:
        """Send an event that the server's state knows nothing of."""
        await self._send(change, item)

    async def compact(self) -> None:
        """Forget every version but the newest, and end the watches, which must list again."""
        self._oldest = self.version
        self._states = {self.version: self._states[self.version]}
        await self.cut()

    async def cut(self) -> None:
        """End every watch at once."""
        async with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    async def close(self) -> None:
        """End the watches, those that are about to begin too."""
        self._closing = True
        await self.cut()

    async def _record(self, kind: str, item: Object) -> None:
        self.version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        if kind == "DELETED":
            del self.objects[item["metadata"]["name"]]
        else:
            self.objects[item["metadata"]["name"]] = item
        self._states[self.version] = [self.objects[name] for name in sorted(self.objects)]
        await self._send(kind, item)

    async def _send(self, kind: str, item: Object) -> None:
        async with self._changed:
            self._events.append((self.version, kind, item))
            self._changed.notify_all()

    async def answer(self, request: web.Request, name: str = "") -> web.StreamResponse:
        """Answer one request that is allowed, for the object ``name`` where the path has one."""
        if name and name not in self.objects:
            return status(404, "NotFound", f'"{name}" not found')
        if request.method != "GET":
            return await self._write(request)
        if (name := self._named(request)) is not None:
            return web.json_response(self.objects[name])
        return await (self._watch(request) if request.query.get("watch") else self._list(request))

    def _named(self, request: web.Request) -> str | None:
        """Return the object that the path ends with, of those that exist."""
        return next((part for part in request.path.split("/")[-2:] if part in self.objects), None)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        body, name = json.loads(await request.read()), self._named(request)
        if request.method == "POST":
            made = body["metadata"]["name"]
            if made in self.objects:
                return status(409, "AlreadyExists", f'"{made}" already exists')
            await self.put(body)
            return web.json_response(self.objects[made], status=201)
        if name is None:
            return status(404, "NotFound", f"{request.path} not found")
        before = self.objects[name]
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected is not None and expected != before["metadata"]["resourceVersion"]:
            return status(409, "Conflict", f'"{name}": the object has been modified')
        if request.method == "DELETE":
            await self.delete(name)
            return web.json_response(before)
        await self.put(body if request.method == "PUT" else merged(before, body))
        return web.json_response(self.objects[name])

    def _passes(self, item: Object, request: web.Request) -> bool:
        pairs = [pair.split("=") for pair in request.query.get("labelSelector", "").split(",") if self.by_labels]
        labels = _metadata(item).get("labels") or {}
        return _selected(item, request) and all(labels.get(name) == value for name, value in pairs)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        limit = int(request.query.get("limit", "500"))
        version, _, start = request.query.get("continue", f"{self.version}:0").partition(":")
        if int(version) < self._oldest:
            return status(410, "Expired", "The provided continue parameter is too old")
        state, at = [item for item in self._states[int(version)] if self._passes(item, request)], int(start)
        page = {"resourceVersion": version}
        if at + limit < len(state):
            page["continue"] = f"{version}:{at + limit}"
        return web.json_response({"kind": "PodList", "metadata": page, "items": state[at : at + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self._oldest:
            return status(410, "Expired", f"too old resource version: {since}")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watches += 1
        sent, cuts, opened_at = 0, self._cuts, len(self._events)
        try:
            while self._cuts == cuts and not self._closing:
                for version, kind, item in self._events[sent:]:
                    if not self._passes(item, request):
                        sent += 1
                        continue
                    if not self.silent and (sent >= opened_at if kind in ("BOOKMARK", "ERROR") else version > since):
                        await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
                    sent += 1
                async with self._changed:
                    if sent == len(self._events) and self._cuts == cuts and not self._closing:
                        await self._changed.wait()
        finally:
            self.watches -= 1
        return response


class ApiServer(Collection):
    """An API server: every path is one collection, except those that ``at`` named. Owner: the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[web.Request] = []
        self.refuse: Answer = lambda _: None
        """Returns what is sent instead of the answer, or None."""
        self.token = TOKEN
        self.url = ""
        self._others: dict[str, Collection] = {}
        self._connections: list[asyncio.Transport] = []

    def at(self, path: str) -> Collection:
        """Return the collection at ``path``, such as ``/api/v1/namespaces/default/pods``; the first call makes it."""
        return self._others.setdefault(path, Collection())

    @override
    async def cut(self) -> None:
        for transport in self._connections:
            transport.abort()
        self._connections.clear()
        for collection in self._others.values():
            await collection.cut()
        await super().cut()

    @override
    async def close(self) -> None:
        for collection in self._others.values():
            await collection.close()
        await super().close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of a client."""
        self.requests.append(request)
        if request.transport is not None:
            self._connections.append(request.transport)  # type: ignore[arg-type]
        if (answer := self.refuse(request)) is not None:
            return answer
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        for path, collection in self._others.items():
            if request.path == path or request.path.startswith(f"{path}/"):
                return await collection.answer(request, request.path[len(path) + 1 :].partition("/")[0])
        return await self.answer(request)


def _metadata(item: Any) -> Object:
    """Return the metadata of an object that a test may have written with any mistake."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _selected(item: Object, request: web.Request) -> bool:
    """Whether a field selector of the request, which only names are supported of, lets an object pass."""
    wanted = request.query.get("fieldSelector", "")
    named = _metadata(item).get("name")
    return not wanted or named is None or wanted == f"metadata.name={named}"


def merged(before: Object, patch: Object) -> Object:
    """Return ``before`` changed by a JSON merge patch."""
    after = dict(before)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = (
                merged(after[key] if isinstance(after.get(key), dict) else {}, value)
                if isinstance(value, dict)
                else value
            )
    return after


def status(code: int, reason: str, message: str, **details: object) -> web.Response:
    """Return a refusal in the API's own form."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or None}
    return web.json_response(body, status=code)


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """Run an API server on a free loopback port, without TLS."""
    server, port = ApiServer(), HttpPort()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    server.url = f"http://127.0.0.1:{await port.open(app, '127.0.0.1', 0)}"
    try:
        yield server
    finally:
        await server.close()
        await port.close()
