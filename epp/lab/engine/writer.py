"""Turns an answer's progress into HTTP: one body when everything is there, or server-sent events as tokens come.

What the bytes look like is a ``Shape``, one for each API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec
from aiohttp import web

from epp.lab.engine.job import Hits
from epp.lab.engine.live import Answer, Part

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Body(ABC):
    """How one API writes a whole answer."""

    @abstractmethod
    def whole(self, answer: Answer) -> bytes:
        """Return the body of a finished answer."""


class Shape(Body):
    """How one API writes an answer, whole or as a stream."""

    def begun(self, answer: Answer) -> bytes:  # noqa: ARG002
        """Return the events before the first token; what was found in which tier is known by then."""
        return b""

    @abstractmethod
    def piece(self, index: int, part: Part, sent: int) -> bytes:
        """Return the events with the tokens of ``part`` after the first ``sent``."""

    @abstractmethod
    def ended(self, answer: Answer) -> bytes:
        """Return the events after the last token."""


async def write_whole(answer: Answer, shape: Body) -> web.Response:
    """Answer when everything is there. The headers tell where the prompts' cached tokens were found."""
    while not answer.finished:
        await answer.changed()
    response = json_response(shape.whole(answer))
    gpu, cpu = hits_of(answer)
    response.headers["x-sim-cached-gpu"] = str(gpu)
    response.headers["x-sim-cached-cpu"] = str(cpu)
    return response


async def write_stream(request: web.Request, answer: Answer, shape: Shape) -> web.StreamResponse:
    """Answer with events: what is new of each part at every step. The headers leave at once, as vLLM's do."""
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
    """The prompt tokens of all parts that were found in a tier."""
    hits = [part.started.hits for part in answer.parts if part.started]
    return Hits(sum(hit.gpu for hit in hits), sum(hit.cpu for hit in hits))


def sent_event(body: object, name: str = "") -> bytes:
    """One server-sent event, with its ``name`` where the API has them."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(body) + b"\n\n"


def json_response(body: bytes, status: int = 200) -> web.Response:
    """``body`` as JSON."""
    return web.Response(body=body, status=status, headers={"content-type": "application/json"})
