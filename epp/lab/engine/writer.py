"""Turns an answer's progress into HTTP: one body at the end, or server-sent events as tokens come.

A ``Shape``, one for each API, decides what the bytes look like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
from aiohttp import web

from epp.lab.engine.job import Hits
from epp.lab.engine.live import Answer, JobProgress

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Body(ABC):
    """Writes a whole answer in the form of one API."""

    @abstractmethod
    def whole(self, answer: Answer) -> bytes:
        """Return the body of a finished answer."""


class Shape(Body):
    """Writes an answer in the form of one API, whole or as a stream."""

    def begun(self, answer: Answer) -> bytes:  # noqa: ARG002
        """Return the events before the first token; the cached tokens per tier are known by then."""
        return b""

    @abstractmethod
    def piece(self, index: int, part: JobProgress, sent: int) -> bytes:
        """Return the events with the tokens of ``part`` after the first ``sent``."""

    @abstractmethod
    def ended(self, answer: Answer) -> bytes:
        """Return the events after the last token."""


async def write_whole(answer: Answer, shape: Body) -> web.Response:
    """Send the answer when it is finished. The headers report in which tiers the prompts' tokens were cached."""
    while not answer.finished:
        await answer.changed()
    response = json_response(shape.whole(answer))
    gpu, cpu = hits_of(answer)
    response.headers["x-sim-cached-gpu"] = str(gpu)
    response.headers["x-sim-cached-cpu"] = str(cpu)
    return response


async def write_stream(request: web.Request, answer: Answer, shape: Shape) -> web.StreamResponse:
    """Send the answer as events: each part's new tokens at every step. The headers are sent at once, as in vLLM."""
    response = web.StreamResponse(headers=STREAM_HEADERS)
    await response.prepare(request)
    sent = [0] * len(answer.parts)
    done = False
    while not done:
        await answer.changed()
        done = answer.finished
        out = [] if any(sent) else [shape.begun(answer)]
        for n, part in enumerate(answer.parts):
            if part.tokens > sent[n]:
                out.append(shape.piece(n, part, sent[n]))
                sent[n] = part.tokens
        if done:
            out.append(shape.ended(answer))
        await response.write(b"".join(out))
    await response.write_eof()
    return response


def hits_of(answer: Answer) -> Hits:
    """Return the prompt tokens of all parts that were found in a tier."""
    hits = [part.started.hits for part in answer.parts if part.started]
    return Hits(sum(hit.gpu for hit in hits), sum(hit.cpu for hit in hits))


def sent_event(body: object, name: str = "") -> bytes:
    """Return one server-sent event, with its ``name`` where the API uses names."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(body) + b"\n\n"


def json_response(body: bytes, status: int = 200) -> web.Response:
    """Return a response with ``body`` as JSON."""
    return web.Response(body=body, status=status, headers={"content-type": "application/json"})
