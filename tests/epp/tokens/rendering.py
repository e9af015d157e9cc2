"""A server that renders and tokenizes as vLLM's does, with a small tokenizer, and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable
from typing import Any

from aiohttp import web

from epp.tokens.model.chat import Unrendered
from epp.tokens.model.model import ModelTokenizer

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


class Renderer:
    """A server as a context manager; ``url`` is its address."""

    def __init__(self, model: ModelTokenizer) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.instead: Callable[[web.Request], Any] | None = None
        """The response to send instead of the real one."""
        self.url = ""
        self._model = model
        self._runner: web.AppRunner | None = None
        self._held = asyncio.Event()

    async def __aenter__(self) -> Renderer:
        app = web.Application(client_max_size=32 << 20)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            read = json.loads(body)
        except ValueError:
            return web.json_response({"error": {}}, status=400)
        self.asked.append((request.path, read))
        if self.instead is not None:
            answered = self.instead(request)
            return await answered if asyncio.iscoroutine(answered) else answered
        if not isinstance(read, dict):
            return web.json_response({"error": {}}, status=422)
        return self._tokenized(read) if request.path == "/tokenize" else self._rendered(request.path, read)

    def _rendered(self, path: str, read: dict[str, Any]) -> web.Response:
        path = path.removesuffix("/render")
        if path not in (CHAT, COMPLETION):
            return web.json_response({"error": {}}, status=400)
        try:
            prompts = [{"request_id": "x", "token_ids": ids, "features": None} for ids in self._ids(path, read)]
        except Unrendered:
            return web.json_response({"error": {}}, status=400)
        return web.json_response(prompts if path == COMPLETION else prompts[0])

    def _tokenized(self, read: dict[str, Any]) -> web.Response:
        if "prompt" in read and not isinstance(read["prompt"], str):
            return web.json_response({"error": {}}, status=422)
        try:
            (ids,) = self._ids(CHAT if "messages" in read else COMPLETION, read)
        except Unrendered:
            return web.json_response({"error": {}}, status=400)
        return web.json_response({"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None})

    def _ids(self, path: str, read: dict[str, Any]) -> list[list[int]]:
        model = self._model
        texts = model.texts(path, json.dumps(read).encode(), 1024)
        partly = model.look_up(texts)
        whole = model.put_together(texts, partly, model.encode(partly))
        return [list(array("I", ids)) for ids in whole]
