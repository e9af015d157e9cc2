"""A vLLM server that tokenizes: its ``/render`` paths, which take a request as it is, or the older ``/tokenize``.

Source: vLLM 0.32. ``/v1/chat/completions/render`` and the other render paths return ``token_ids`` (a list of such
objects for completions), and ``features`` for media. ``/tokenize`` takes one text, or messages with some of the fields
of a chat request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from epp.errors import BadRequest, ConfigError
from epp.parsers.rewrite import with_model
from epp.pool.candidates import serving
from epp.tokens.circuit_breaker import CircuitBreaker
from epp.tokens.media import begins_with_media, goes_on_with_media
from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.model.packing import packed
from epp.tokens.plan import Candidates, RemotePlan
from epp.tokens.source import Done, TokenRequest

log = logging.getLogger(__name__)

RENDERED = ("/chat/completions", "/completions", "/messages", "/responses")
"""The path suffixes of requests that can be rendered; the first match counts."""
MAX_ANSWER_BYTES = 16 << 20
"""About two million token ids. A guess: more than any model takes."""
LARGE_ANSWER_BYTES = 32 << 10
"""Answers of this size or more are decoded in a thread. Source: that many bytes take 0.2 ms of the event loop."""
CONNECTIONS = 64
AWAY = (502, 503, 504)
"""The statuses that stand for an outage of the server. Other errors may be the fault of one request, and must not cost
other requests their token ids.
"""
PATIENT = 0.9
"""A canceled request counts as a failure of the server if it had run for at least this share of the timeout."""
NOT_THERE = "; is the model's name right? Servers without that path may have the other: see vllm.api"


class Rendered(msgspec.Struct):
    """The fields used of a ``/render`` answer."""

    token_ids: list[int]
    features: Any = None


class Tokenized(msgspec.Struct):
    """The fields used of a ``/tokenize`` answer."""

    tokens: list[int]


TAKEN = (
    "prompt", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
    "chat_template_kwargs",
)  # fmt: skip
"""The fields of a request that ``/tokenize`` accepts."""
UNTAKEN = (
    "documents", "reasoning_effort", "suffix", "prompt_embeds", "truncate_prompt_tokens", "kv_transfer_params",
    "chat_template",
)  # fmt: skip
"""Fields that change a prompt, but that ``/tokenize`` does not support."""
REASONING = b'"reasoning_content"'
"""A message's field that a chat treats as ``reasoning``, but that ``/tokenize`` ignores."""


class Failed(Exception):
    """Raised when the server has not answered as it should; with an empty sentence, no request was sent."""

    def __init__(self, why: NoTokenIds, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


class RemoteJob:
    """A request that a server tokenizes. Owner: the event loop."""

    def __init__(self, done: Done) -> None:
        self._done: Done | None = done
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Drop the callback, and cancel the request."""
        self._done = None
        if self.task is not None:
            self.task.cancel()

    def finish(self, answer: Answer) -> None:
        """Pass ``answer`` to the callback, at most once."""
        done, self._done = self._done, None
        if done is not None:
            done(answer)


class RemoteSource:
    """A ``TokenSource`` that lets a server tokenize. Owner: the event loop on which it is first used."""

    def __init__(self, plan: RemotePlan, candidates: Candidates, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the certificates. Raises: ConfigError if they cannot be read."""
        self._plan = plan
        self._candidates = candidates
        self._turns = itertools.count()
        self._clock = clock
        self._breaker = CircuitBreaker(clock)
        self._tls = _tls(plan)
        self._session: aiohttp.ClientSession | None = None
        self._jobs: dict[asyncio.Task[None], RemoteJob] = {}

    def now(self, request: TokenRequest) -> Answer | None:
        """Return the reason if the request cannot be tokenized by a server, else None."""
        if rendered_path(request.path) is None:
            return NoTokenIds.UNSUPPORTED
        if len(request.body) > self._plan.max_bytes:
            return NoTokenIds.TOO_LONG
        if begins_with_media(request.body):
            return NoTokenIds.MEDIA
        return None

    def later(self, request: TokenRequest, done: Done) -> RemoteJob:
        """Send the request to a server."""
        job = RemoteJob(done)
        task = job.task = asyncio.get_running_loop().create_task(self._run(request, job))
        self._jobs[task] = job
        task.add_done_callback(lambda ended: self._jobs.pop(ended, None))
        return job

    async def close(self) -> None:
        """End all requests with ``CLOSED``, and close the connections."""
        for task, job in list(self._jobs.items()):
            job.finish(NoTokenIds.CLOSED)
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def _run(self, request: TokenRequest, job: RemoteJob) -> None:
        try:
            if await goes_on_with_media(request.body):
                job.finish(NoTokenIds.MEDIA)
                return
            ids = await (self._render(request) if self._plan.renders else self._tokenize(request))
            job.finish(_enough(ids, request.prompts))
        except Failed as failure:
            if failure.why is NoTokenIds.FAILED and str(failure):
                log.warning("tokens: %s", failure)
            job.finish(failure.why)
        except Exception:
            log.exception("tokens: a request could not be tokenized, and goes on without")
            job.finish(NoTokenIds.FAILED)

    async def _render(self, request: TokenRequest) -> list[bytes]:
        path = rendered_path(request.path)
        name, body = self._plan.model_name, request.body
        if name and name != request.model:
            try:
                body = with_model(body, name)
            except BadRequest as error:
                raise Failed(NoTokenIds.REFUSED, str(error)) from error
        answered = await self._post(f"/v1{path}/render", body)
        kind = list[Rendered] if path == "/completions" else Rendered
        answer: Any = await self._decoded(answered, kind)
        prompts: list[Rendered] = answer if isinstance(answer, list) else [answer]
        if any(prompt.features for prompt in prompts):
            raise Failed(NoTokenIds.MEDIA, "media")
        return [_packed(prompt.token_ids) for prompt in prompts]

    async def _tokenize(self, request: TokenRequest) -> list[bytes]:
        if rendered_path(request.path) not in RENDERED[:2]:
            raise Failed(NoTokenIds.UNSUPPORTED, "neither a completion nor a chat")
        try:
            given = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Failed(NoTokenIds.REFUSED, str(error)) from error
        present = {key: raw for key, raw in given.items() if bytes(raw) != b"null"}
        if any(key in present for key in UNTAKEN) or REASONING in request.body:
            raise Failed(NoTokenIds.UNSUPPORTED, "a field that /tokenize does not know")
        model = msgspec.Raw(msgspec.json.encode(self._plan.model_name or request.model))
        wanted = {"model": model, **{key: present[key] for key in TAKEN if key in present}}
        found = []
        for text in _texts(wanted.pop("prompt", None), request.prompts):
            body = msgspec.json.encode(wanted if text is None else {**wanted, "prompt": text})
            answer = await self._decoded(await self._post("/tokenize", body), Tokenized)
            found.append(_packed(answer.tokens))
        return found

    async def _post(self, path: str, body: bytes) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._plan.timeout_s),
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        base = self._base()
        url, began = base + path, self._clock()
        try:
            async with self._session.post(url, data=body, allow_redirects=False) as response:
                if response.status != 200:
                    why = NoTokenIds.REFUSED if response.status in (400, 413, 422) else NoTokenIds.FAILED
                    if response.status in AWAY:
                        self._breaker.failed(base)
                    else:
                        self._breaker.succeeded(base)
                    hint = NOT_THERE if response.status == 404 else ""
                    raise Failed(why, f"{url} answers with status {response.status}{hint}")
                parts, size = [], 0
                async for part in response.content.iter_any():
                    size += len(part)
                    if size > MAX_ANSWER_BYTES:
                        raise Failed(NoTokenIds.TOO_LONG, f"{url} sends more than {MAX_ANSWER_BYTES >> 20} MiB")
                    parts.append(part)
                self._breaker.succeeded(base)
                return b"".join(parts)
        except asyncio.CancelledError:
            if self._clock() - began >= PATIENT * self._plan.timeout_s:  # close to the timeout: the server is slow
                self._breaker.failed(base)
            raise
        except TimeoutError as error:
            self._breaker.failed(base)
            raise Failed(NoTokenIds.TIMEOUT, f"{url} takes more than {self._plan.timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._breaker.failed(base)
            raise Failed(NoTokenIds.FAILED, f"{url}: {str(error) or type(error).__name__}") from error

    def _base(self) -> str:
        """Return the base URL of the next server. Raises: Failed if no server is available now."""
        if self._plan.url:
            servers = [self._plan.url]
        else:
            candidates = serving(self._candidates())
            servers = [f"{self._plan.scheme}://{candidate.address}" for candidate in candidates]
        if not servers:
            raise Failed(NoTokenIds.FAILED, "the pool has no endpoint to ask")
        available = self._breaker.available(servers)
        if not available:
            raise Failed(NoTokenIds.FAILED, "")
        base = available[next(self._turns) % len(available)]
        self._breaker.request_sent(base)
        return base

    async def _decoded(self, body: bytes, kind: Any) -> Any:
        def decode() -> Any:
            return msgspec.json.decode(body, type=kind)

        try:
            return decode() if len(body) < LARGE_ANSWER_BYTES else await asyncio.to_thread(decode)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Failed(NoTokenIds.FAILED, f"an answer that is none: {error}") from error


def _tls(plan: RemotePlan) -> ssl.SSLContext | bool:
    """Return how the server's certificate is checked and which one we present. Raises: ConfigError."""
    if not (plan.ca_cert_path or plan.client_cert_path or plan.insecure_skip_verify):
        return True
    try:
        context = ssl.create_default_context(cafile=plan.ca_cert_path or None)
        if plan.client_cert_path:
            context.load_cert_chain(plan.client_cert_path, plan.client_key_path or None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificates for tokenizing: {error}; check the paths of token-producer") from error
    if plan.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def rendered_path(path: str) -> str | None:
    """Return the suffix by which a request to ``path`` is rendered; None if it cannot be."""
    return next((name for name in RENDERED if path.endswith(name)), None)


def _texts(prompt: msgspec.Raw | None, most: int) -> list[msgspec.Raw | None]:
    """Return the JSON texts of a field that holds one text or several; ``[None]`` for a chat, which has no such one."""
    if prompt is None or not bytes(prompt).startswith(b"["):
        return [prompt]
    return list(msgspec.json.decode(prompt, type=list[msgspec.Raw])[:most])


def _enough(ids: list[bytes], prompts: int) -> tuple[bytes, ...]:
    if len(ids) < prompts:
        raise Failed(NoTokenIds.FAILED, f"an answer for {len(ids)} prompts of {prompts}")
    return tuple(ids[:prompts])


def _packed(ids: list[int]) -> bytes:
    try:
        return packed(ids)
    except OverflowError as error:
        raise Failed(NoTokenIds.FAILED, f"an answer with a token id that is none: {error}") from error
