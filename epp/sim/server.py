"""One simulated endpoint as an aiohttp application: OpenAI's API, vLLM's metrics and errors.

A stream's headers leave when the request is accepted, as vLLM's do. What was found in which tier is known only at
admission, so it is in the ``usage`` of every answer, and in the headers ``x-sim-cached-gpu`` and ``x-sim-cached-cpu``
(tokens) of those that are not streamed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from epp.sim import openai, tokens
from epp.sim.engine import Engine
from epp.sim.exposition import CONTENT_TYPE, Exposition
from epp.sim.job import Job, RefusedError
from epp.sim.live import Answer, LiveEngine, Part
from epp.sim.openai import ApiError, Ask
from epp.sim.preset import Preset

if TYPE_CHECKING:
    from epp.sim.events import EngineEvents
    from epp.sim.publisher import EventPublisher

MAX_BODY_BYTES = 64 << 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handlers of one endpoint and its engine. Owner: the running event loop."""

    def __init__(self, preset: Preset, *, speed: float = 1.0, publisher: EventPublisher | None = None) -> None:
        """``publisher`` is where the engine's KV events go."""
        self.preset = preset
        self._events: EngineEvents | None = None
        if publisher is not None:
            from epp.sim.events import EngineEvents

            self._events = EngineEvents(preset, publisher)
        self.live = LiveEngine(Engine(preset) if self._events is None else self._events.engine, speed=speed)
        self._exposition = Exposition(self.live.engine, self.live.unix_s)
        self._born = int(time.time())

    def application(self) -> web.Application:
        """The routes. A handler is cancelled when its client goes away, which aborts the request."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors_as_json])
        app.add_routes(
            [
                web.post("/v1/completions", self.completions),
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/completions/render", self.render_completions),
                web.post("/v1/chat/completions/render", self.render_chat),
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.get("/metrics", self.metrics),
                web.post("/reset_prefix_cache", self.reset_prefix_cache),
            ]
        )
        app.cleanup_ctx.append(self._running)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self.live.stop()

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/completions``."""
        body = openai.read(await request.read(), openai.Completion, self.preset.model)
        return await self._serve(request, openai.ask_completion(body), "cmpl-")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        body = openai.read(await request.read(), openai.Chat, self.preset.model)
        return await self._serve(request, openai.ask_chat(body), "chatcmpl-")

    async def render_completions(self, request: web.Request) -> web.Response:
        """``POST /v1/completions/render``: the token ids of each prompt, as its KV events have them."""
        body = openai.read(await request.read(), openai.Completion, self.preset.model)
        rendered = [{"token_ids": tokens.ids(prompt)} for prompt in openai.completion_prompts(body.prompt)]
        return json_response(msgspec.json.encode(rendered))

    async def render_chat(self, request: web.Request) -> web.Response:
        """``POST /v1/chat/completions/render``: the same of a chat."""
        ask = openai.ask_chat(openai.read(await request.read(), openai.Chat, self.preset.model))
        return json_response(msgspec.json.encode({"token_ids": tokens.ids(ask.prompts[0])}))

    async def models(self, _request: web.Request) -> web.Response:
        """``GET /v1/models``: the one that is served."""
        preset = self.preset
        card = {"id": preset.model, "object": "model", "created": self._born, "owned_by": "tierwise-sim"}
        listing = {"object": "list", "data": [{**card, "root": preset.model, "max_model_len": preset.max_model_len}]}
        return json_response(msgspec.json.encode(listing))

    async def health(self, _request: web.Request) -> web.Response:
        """``GET /health``."""
        return web.Response()

    async def metrics(self, _request: web.Request) -> web.Response:
        """``GET /metrics``."""
        return web.Response(body=self._exposition.text(), headers={"content-type": CONTENT_TYPE})

    async def reset_prefix_cache(self, _request: web.Request) -> web.Response:
        """``POST /reset_prefix_cache``: as vLLM's, the GPU's only."""
        self.live.engine.reset_prefix_cache()
        return web.Response()

    async def _serve(self, request: web.Request, ask: Ask, prefix: str) -> web.StreamResponse:
        answer_id = prefix + (request.headers.get("x-request-id") or uuid.uuid4().hex)
        jobs = [self._job(ask, data, f"{uuid.uuid4().hex}-{n}") for n, data in enumerate(ask.prompts)]
        events = self._events
        if events is not None:
            for job, data in zip(jobs, ask.prompts, strict=True):
                events.learn(job.keys, data, ask.salt)
        try:
            with self.live.serving(jobs, streaming=ask.stream) as answer:
                writer = Writer(ask, answer, answer_id, self.preset.model)
                return await (writer.stream(request) if ask.stream else writer.whole())
        except RefusedError as error:
            raise openai.bad_request(str(error)) from error
        finally:
            if events is not None:
                for job in jobs:
                    events.forget(job.keys)

    def _job(self, ask: Ask, data: bytes, job_id: str) -> Job:
        keys = tokens.block_keys(ask.identity, data, self.preset.block_tokens)
        return Job(job_id, keys, tokens.count(data), ask.output_tokens)


class Writer:
    """Turns an answer's progress into HTTP."""

    def __init__(self, ask: Ask, answer: Answer, answer_id: str, model: str) -> None:
        self._ask, self._answer, self._id, self._model = ask, answer, answer_id, model
        self._created = int(time.time())

    async def whole(self) -> web.Response:
        """One JSON body when everything is there."""
        answer, ask = self._answer, self._ask
        while not answer.finished:
            await answer.changed()
        text = tokens.filler(0, ask.output_tokens)
        indices = range(len(answer.parts))
        if ask.chat:
            message = openai.Text("assistant", text)
            messages = [openai.MessageChoice(n, message, ask.finish_reason) for n in indices]
            body = self._body("chat.completion", messages, self._usage())
        else:
            texts = [openai.TextChoice(n, text, ask.finish_reason) for n in indices]
            body = self._body("text_completion", texts, self._usage())
        body.kv_transfer_params = self._report()
        response = json_response(msgspec.json.encode(body))
        details = self._usage().prompt_tokens_details
        response.headers["x-sim-cached-gpu"] = str(details.gpu_tokens)
        response.headers["x-sim-cached-cpu"] = str(details.cpu_tokens)
        return response

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, one for what is new of each part at every step, then the usage if asked for."""
        answer, ask = self._answer, self._ask
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        )
        await response.prepare(request)
        sent = [0] * len(answer.parts)
        done = False
        while not done:
            await answer.changed()
            done = answer.finished
            out: list[bytes] = []
            for n, part in enumerate(answer.parts):
                if part.tokens > sent[n]:
                    out.append(self._piece(n, part, sent[n]))
                    sent[n] = part.tokens
            if done and ask.include_usage:
                out.append(event(self._body(self._event_object, [], self._usage())))
            if done:
                out.append(b"data: [DONE]\n\n")
            await response.write(b"".join(out))
        await response.write_eof()
        return response

    @property
    def _event_object(self) -> str:
        return "chat.completion.chunk" if self._ask.chat else "text_completion"

    def _piece(self, index: int, part: Part, sent: int) -> bytes:
        """The event with the tokens of ``part`` after the first ``sent``; before a chat's first one comes its role."""
        text = tokens.filler(sent, part.tokens)
        reason = self._ask.finish_reason if part.tokens == part.job.output_tokens else None
        if not self._ask.chat:
            return event(self._body(self._event_object, [openai.TextChoice(index, text, reason)]))
        piece = event(self._body(self._event_object, [openai.DeltaChoice(index, openai.Text(None, text), reason)]))
        if sent == 0:
            role = openai.DeltaChoice(index, openai.Text("assistant", ""), None)
            return event(self._body(self._event_object, [role])) + piece
        return piece

    def _body(
        self,
        kind: str,
        choices: list[openai.TextChoice] | list[openai.MessageChoice] | list[openai.DeltaChoice],
        usage: openai.UsageBody | None = None,
    ) -> openai.AnswerBody:
        return openai.AnswerBody(self._id, kind, self._created, self._model, choices, usage)

    def _report(self) -> openai.Report | None:
        """As vLLM's answers have it: of the first prompt, and never in a stream."""
        part = self._answer.parts[0]
        if not self._ask.report or part.started is None:
            return None
        hits = part.started.hits
        return openai.Report(part.job.prompt_tokens, {"gpu": hits.gpu, "cpu": hits.cpu})

    def _usage(self) -> openai.UsageBody:
        parts = self._answer.parts
        hits = [part.started.hits for part in parts if part.started]
        gpu, cpu = sum(hit.gpu for hit in hits), sum(hit.cpu for hit in hits)
        prompt, output = sum(part.job.prompt_tokens for part in parts), sum(part.tokens for part in parts)
        return openai.UsageBody(prompt, output, prompt + output, openai.PromptDetails(gpu + cpu, gpu, cpu))


def event(body: openai.AnswerBody) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def json_response(body: bytes, status: int = 200) -> web.Response:
    """``body`` as JSON."""
    return web.Response(body=body, status=status, headers={"content-type": "application/json"})


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer refusals, aiohttp's own too (unknown path, body too large), in vLLM's shape."""
    try:
        return await handler(request)
    except ApiError as error:
        return json_response(error.body(), error.status)
    except web.HTTPException as error:
        refusal = ApiError(error.status, f"{error.reason.replace(' ', '')}Error", error.reason)
        return json_response(refusal.body(), error.status)
