"""An OpenAI-like server that waits, fails or breaks off exactly when a test requests it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PIECES = 3
MODELS = ("m", "other", "engine/model")
"""The model that it lists; it answers requests for any model."""


@dataclass
class Engine:
    """An engine that answers with its own address, so that a client can see which engine served it.

    While ``gate`` is cleared, every answer waits; ``break_off`` ends the connection after the first piece of a streamed
    one.
    """

    waiting: int = 0
    """The numbers of its metrics page."""
    running: int = 0
    break_off: bool = False
    compressing: bool = False
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    address: str = ""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    gone: int = 0
    """The number of requests whose client left."""

    async def start(self, port: int = 0) -> None:
        self.gate.set()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/{kind:completions|chat/completions|embeddings}", self._serve)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/realtime", self._realtime)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    def reset(self) -> None:
        """Reset everything but the address."""
        self.waiting = self.running = 0
        self.break_off = self.compressing = False
        self.requests.clear()
        self.bodies.clear()
        self.gate.set()
        self.started.clear()

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        if "x-request-id" in request.headers:  # by way of the proxy; the picker reads the list without it
            self.requests.append(request)
        cards = [{"id": name, "object": "model", "owned_by": self.address} for name in MODELS]
        return web.json_response({"object": "list", "data": cards})

    async def _metrics(self, _: web.Request) -> web.Response:
        lines = [
            f'vllm:num_requests_waiting{{model_name="m"}} {self.waiting}',
            f'vllm:num_requests_running{{model_name="m"}} {self.running}',
            'vllm:kv_cache_usage_perc{model_name="m"} 0.1',
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def _realtime(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a WebSocket that sends its address, and then echoes every message until ``bye``."""
        talk = web.WebSocketResponse()
        await talk.prepare(request)
        self.requests.append(request)
        await talk.send_str(self.address)
        async for message in talk:
            if message.data == "bye":
                break
            await talk.send_str(message.data)
        await talk.close()
        return talk

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append(request)
        self.bodies.append(body)
        chat = request.match_info["kind"].startswith("chat")
        try:
            if body.get("stream"):
                return await self._stream(request, chat, body["model"])
            self.started.set()
            await self.gate.wait()
            response = web.json_response(answer(self.address, chat, None, body["model"]) | {"usage": USAGE})
        except (ConnectionResetError, asyncio.CancelledError):
            self.gone += 1
            raise
        if self.compressing:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _stream(self, request: web.Request, chat: bool, model: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in range(PIECES):
            data = answer(self.address, chat, piece, model)
            await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")
            self.started.set()
            await self.gate.wait()
            if self.break_off and request.transport is not None:
                request.transport.abort()
                return response
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


USAGE = {"prompt_tokens": 7, "completion_tokens": PIECES, "total_tokens": 7 + PIECES}


def answer(text: str, chat: bool, piece: int | None, model: str) -> dict[str, Any]:
    """Return a whole answer, or the ``piece``-th piece of a streamed one."""
    finish = "stop" if piece in (None, PIECES - 1) else None
    if chat:
        said = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"delta" if piece is not None else "message": said}
        kind = "chat.completion" if piece is None else "chat.completion.chunk"
    else:
        choice, kind = {"text": text, "logprobs": None}, "text_completion"
    choice |= {"index": 0, "finish_reason": finish}
    return {"id": "x-1", "object": kind, "created": 1, "model": model, "choices": [choice]}
