"""One simulated endpoint as an aiohttp application: vLLM's routes, metrics and errors.

A stream's headers are sent when the request is accepted, as in vLLM. Which tier had which tokens is known only at
admission, so the counts are in the ``usage`` of every answer, and in the headers ``x-sim-cached-gpu`` and
``x-sim-cached-cpu`` (tokens) of answers that are not streamed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from epp.lab.engine import anthropic, openai, tokens
from epp.lab.engine.anthropic import MessagesShape
from epp.lab.engine.ask import Ask, decode
from epp.lab.engine.embeddings import Embeddings, Vectors, ask_embeddings
from epp.lab.engine.engine import Engine
from epp.lab.engine.errors import ApiError, bad_request
from epp.lab.engine.exposition import CONTENT_TYPE, Exposition
from epp.lab.engine.job import Job, RefusedError
from epp.lab.engine.live import Answer, LiveEngine
from epp.lab.engine.openai_answers import Chats, Completions
from epp.lab.engine.preset import Preset
from epp.lab.engine.responses import Responses, ResponsesShape, ask_responses
from epp.lab.engine.served import ModelCard, ModelList, ServedModels
from epp.lab.engine.tokenize import Detokenize, Tokenize, detokenized, rendered, tokenized
from epp.lab.engine.writer import Shape, json_response, write_stream, write_whole

if TYPE_CHECKING:
    from epp.lab.engine.events import EngineEvents
    from epp.lab.engine.publisher import EventPublisher

MAX_BODY_BYTES = 64 << 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handlers of one endpoint, and its engine. Owner: the running event loop."""

    def __init__(
        self,
        preset: Preset,
        *,
        speed: float = 1.0,
        publisher: EventPublisher | None = None,
        models: ServedModels | None = None,
    ) -> None:
        """``publisher`` publishes the KV events; ``models`` is what is served, by default the preset's model."""
        self.preset = preset
        self.served = models or ServedModels(preset.model, [preset.model])
        self._events: EngineEvents | None = None
        if publisher is not None:
            from epp.lab.engine.events import EngineEvents

            self._events = EngineEvents(preset, publisher)
        self.live = LiveEngine(Engine(preset) if self._events is None else self._events.engine, speed=speed)
        self._exposition = Exposition(self.live.engine, self.live.unix_s, self.served)
        self._born = int(time.time())

    def application(self) -> web.Application:
        """Return the application. A client that disconnects cancels its handler, which aborts the request."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors_as_json])
        app.add_routes(
            [
                web.post("/v1/completions", self.completions),
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/messages", self.messages),
                web.post("/v1/messages/count_tokens", self.count_tokens),
                web.post("/v1/responses", self.responses),
                web.post("/v1/embeddings", self.embeddings),
                web.post("/v1/completions/render", self.render_completions),
                web.post("/v1/chat/completions/render", self.render_chat),
                web.post("/tokenize", self.tokenize),
                web.post("/detokenize", self.detokenize),
                web.get("/v1/models", self.models),
                web.get("/v1/models/{id:.+}", self.model),
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
        """Serve a ``POST /v1/completions`` request."""
        body = decode(await request.read(), openai.Completion)
        return await self._openai(request, body, openai.ask_completion(body), Completions, "cmpl-")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Serve a ``POST /v1/chat/completions`` request."""
        body = decode(await request.read(), openai.Chat)
        return await self._openai(request, body, openai.ask_chat(body), Chats, "chatcmpl-")

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Serve a ``POST /v1/messages`` request."""
        ask = anthropic.ask_messages(decode(await request.read(), anthropic.Messages))
        return await self._serve(request, ask, MessagesShape(answer_id(request, "msg_"), self._name(ask)))

    async def count_tokens(self, request: web.Request) -> web.Response:
        """Serve a ``POST /v1/messages/count_tokens`` request."""
        body = decode(await request.read(), anthropic.Counted)
        self.served.find(body.model)
        return json_response(msgspec.json.encode({"input_tokens": tokens.count(body.prompt)}))

    async def responses(self, request: web.Request) -> web.StreamResponse:
        """Serve a ``POST /v1/responses`` request."""
        ask = ask_responses(decode(await request.read(), Responses))
        shape = ResponsesShape(answer_id(request), self._name(ask), limited=ask.limited)
        return await self._serve(request, ask, shape)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        """Serve a ``POST /v1/embeddings`` request."""
        body = decode(await request.read(), Embeddings)
        ask = ask_embeddings(body)
        vectors = Vectors(self._name(ask), ask.prompts, body)
        with self._serving(ask) as answer:
            return await write_whole(answer, vectors)

    async def render_completions(self, request: web.Request) -> web.Response:
        """Serve ``POST /v1/completions/render``: the token ids of each prompt, equal to those in its KV events."""
        ask = openai.ask_completion(decode(await request.read(), openai.Completion))
        self.served.find(ask.model)
        return json_response(msgspec.json.encode([rendered(prompt) for prompt in ask.prompts]))

    async def render_chat(self, request: web.Request) -> web.Response:
        """Serve ``POST /v1/chat/completions/render``: the token ids of a chat's prompt."""
        ask = openai.ask_chat(decode(await request.read(), openai.Chat))
        self.served.find(ask.model)
        return json_response(msgspec.json.encode(rendered(ask.prompts[0])))

    async def tokenize(self, request: web.Request) -> web.Response:
        """Serve a ``POST /tokenize`` request."""
        body = decode(await request.read(), Tokenize)
        self._known(body.model)
        return json_response(tokenized(body, self.preset.max_model_len))

    async def detokenize(self, request: web.Request) -> web.Response:
        """Serve a ``POST /detokenize`` request."""
        body = decode(await request.read(), Detokenize)
        self._known(body.model)
        return json_response(detokenized(body))

    async def models(self, _request: web.Request) -> web.Response:
        """Serve ``GET /v1/models``: every served name and every adapter."""
        return json_response(msgspec.json.encode(ModelList(self._cards())))

    async def model(self, request: web.Request) -> web.Response:
        """Serve ``GET /v1/models/{id}``: the card of one model."""
        name = request.match_info["id"]
        self.served.find(name)
        return json_response(msgspec.json.encode(next(card for card in self._cards() if card.id == name)))

    async def health(self, _request: web.Request) -> web.Response:
        """Serve a ``GET /health`` request."""
        return web.Response()

    async def metrics(self, _request: web.Request) -> web.Response:
        """Serve a ``GET /metrics`` request."""
        return web.Response(body=self._exposition.text(), headers={"content-type": CONTENT_TYPE})

    async def reset_prefix_cache(self, _request: web.Request) -> web.Response:
        """Serve ``POST /reset_prefix_cache``: as in vLLM, only the GPU cache is reset."""
        self.live.engine.reset_prefix_cache()
        return web.Response()

    async def _openai(
        self, request: web.Request, body: openai.Common, ask: Ask, kind: type[Completions], prefix: str
    ) -> web.StreamResponse:
        shape = kind(
            answer_id(request, prefix), self._name(ask), "length" if ask.limited else "stop",
            include_usage=body.include_usage, report=body.report,
        )  # fmt: skip
        return await self._serve(request, ask, shape)

    async def _serve(self, request: web.Request, ask: Ask, shape: Shape) -> web.StreamResponse:
        with self._serving(ask) as answer:
            return await (write_stream(request, answer, shape) if ask.stream else write_whole(answer, shape))

    @contextmanager
    def _serving(self, ask: Ask) -> Iterator[Answer]:
        """Yield the answer to ``ask``; leaving the context aborts it. Raises: ApiError for what cannot be served."""
        adapter, events = self.served.find(ask.model).adapter, self._events
        identity = ask.identity(adapter)
        jobs: list[Job] = []
        for data in ask.prompts:
            keys = tokens.block_keys(identity, data, self.preset.block_tokens)
            jobs.append(Job(uuid.uuid4().hex, keys, tokens.count(data), ask.output_tokens, adapter))
            if events is not None:
                events.learn(keys, data, ask.salt, adapter)
        try:
            with self.live.serving(jobs, streaming=ask.stream) as answer:
                yield answer
        except RefusedError as error:
            raise bad_request(str(error)) from error
        finally:
            if events is not None:
                for job in jobs:
                    events.forget(job.keys)

    def _name(self, ask: Ask) -> str:
        """Return the model's name in the answer. Raises: ApiError 404 for a model that is not served."""
        return self.served.find(ask.model).name

    def _known(self, model: str | None) -> None:
        """Check that ``model`` is served; None stands for the first. Raises: ApiError 404 if it is not."""
        if model is not None:
            self.served.find(model)

    def _cards(self) -> list[ModelCard]:
        return self.served.cards(self._born, self.preset.max_model_len)


def answer_id(request: web.Request, prefix: str = "") -> str:
    """Return an answer's id: ``prefix`` and the client's own id, or a new one."""
    return prefix + (request.headers.get("x-request-id") or uuid.uuid4().hex)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer refusals in vLLM's form, including those of aiohttp itself (unknown path, body too large)."""
    try:
        return await handler(request)
    except ApiError as error:
        return json_response(error.body(request.path), error.status)
    except web.HTTPException as error:
        refusal = ApiError(error.status, f"{error.reason.replace(' ', '')}Error", error.reason)
        return json_response(refusal.body(request.path), error.status)
