"""An API server that answers reviews."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from tests.epp.kube.api_server import status

PICKER = "system:serviceaccount:llm:picker"


class Reviewing:
    """Answers every review by its tables; ``refused`` names reviews that the picker may not ask for."""

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        """The user of each token that is good."""
        self.readers: set[str] = set()
        """The users that may get /metrics."""
        self.rights: set[tuple[str, str, str]] = set()
        """The group, resource and verb of each right that the picker has."""
        self.served: set[str] = set()
        self.forbidden: set[str] = set()
        """The paths that the picker may not read."""
        self.refused: set[str] = set()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.held = asyncio.Event()
        """No review is answered before this is set."""
        self.held.set()
        self.at_once = self.most_at_once = 0

    def kinds(self) -> list[str]:
        """What was asked for, in order."""
        return [kind for kind, _ in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of a client."""
        if request.path in self.forbidden:
            return status(403, "Forbidden", f'User "{PICKER}" cannot get {request.path}')
        if request.method == "GET":
            known = request.path.removeprefix("/apis/") in self.served
            return web.json_response({"kind": "APIResourceList"}) if known else status(404, "NotFound", "no such group")
        kind, spec = request.path.rpartition("/")[2], json.loads(await request.read())["spec"]
        self.asked.append((kind, spec))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await self.held.wait()
        self.at_once -= 1
        if kind in self.refused:
            return status(403, "Forbidden", f'User "{PICKER}" cannot create resource "{kind}"')
        return web.json_response({"kind": kind, "status": self._status(kind, spec)}, status=201)

    def _status(self, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        if kind == "tokenreviews":
            user = self.users.get(spec["token"])
            if user is None:
                return {"user": {}, "error": "invalid bearer token"}
            return {"authenticated": True, "user": {"username": user, "groups": ["g"], "extra": {"k": ["v"]}}}
        if kind == "subjectaccessreviews":
            path = spec["nonResourceAttributes"]
            allowed = spec["user"] in self.readers and path == {"path": "/metrics", "verb": "get"}
            return {"allowed": allowed}
        if kind == "selfsubjectreviews":
            return {"userInfo": {"username": PICKER}}
        asked = spec["resourceAttributes"]
        resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
        return {"allowed": (asked["group"], resource, asked["verb"]) in self.rights}
