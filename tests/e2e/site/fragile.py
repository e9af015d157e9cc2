"""Engines that fail on request, and that count how often each request was begun.

They use raw HTTP/1.1, so that a connection ends exactly where a test wants it. The content of an answer follows from
the request alone: its number and the checksum of its body. So a client can distinguish a right answer from a wrong one.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import httptools

PIECES = 4
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Mood(Enum):
    """The behavior of an engine with a request that it has read."""

    WELL = "well"
    HELD = "held"
    """Sends the first piece of a streamed answer and holds the rest; answers scrapes."""
    SILENT = "silent"
    """Reads requests and scrapes, and answers neither."""
    DIES_BEFORE_HEADERS = "dies before headers"
    DIES_MID_STREAM = "dies mid-stream"
    """Ends the connection after the headers and a piece of a streamed answer, or after half of another."""


def request_body(number: int, *, stream: bool, size: int = 0, pad: int = 0) -> bytes:
    """Return a completion request with its number; each piece of its streamed answer has ``pad`` extra bytes."""
    prompt = f"{number} " + "x" * size
    return json.dumps({"model": "m", "prompt": prompt, "stream": stream, "pad": pad}).encode()


def whole_answer(number: int, body: bytes) -> bytes:
    """Return the answer to a request that is not streamed."""
    text = f"{number}:{zlib.crc32(body)}"
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    return json.dumps({"object": "text_completion", "model": "m", "choices": [choice]}).encode()


def streamed_answer(number: int, body: bytes) -> list[bytes]:
    """Return the pieces of the answer to a streamed request."""
    pad = "y" * json.loads(body)["pad"]
    events = [json.dumps({"choices": [{"index": 0, "text": f"{number}:{i} {pad}"}]}) for i in range(PIECES - 1)]
    events.append(json.dumps({"choices": [{"index": 0, "text": str(zlib.crc32(body)), "finish_reason": "stop"}]}))
    return [f"data: {event}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]


@dataclass(eq=False)
class FragileEngine:
    """One endpoint. Owner: the event loop that started it."""

    mood: Mood = Mood.WELL
    begun: Counter[int] = field(default_factory=Counter)
    """How often each request was read to its end, by number."""
    address: str = ""
    connections: set[_Connection] = field(default_factory=set)
    _waiting: list[Callable[[], None]] = field(default_factory=list)
    _server: asyncio.Server | None = None

    @property
    def running(self) -> int:
        """Return the number of requests in progress."""
        return sum(connection.busy for connection in self.connections)

    async def start(self) -> None:
        """Listen, at the same port as before if it has listened before."""
        port = int(self.address.rpartition(":")[2] or 0)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=4096)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def die(self) -> None:
        """Close the port and break off every connection at once."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.transport.abort()
        self._waiting.clear()

    def recover(self) -> None:
        """Recover, and continue the answers that were held."""
        self.mood = Mood.WELL
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def later(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when the engine recovers."""
        self._waiting.append(go_on)

    def metrics(self) -> bytes:
        """Return a metrics page with the queue and the cache of vLLM."""
        labels = 'model_name="m"'
        lines = (
            f"vllm:num_requests_waiting{{{labels}}} 0",
            f"vllm:num_requests_running{{{labels}}} {self.running}",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.1",
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1',
        )
        return "\n".join(lines).encode() + b"\n"


class _Connection(asyncio.Protocol):
    """One connection from the proxy or the scraper."""

    def __init__(self, engine: FragileEngine) -> None:
        self.engine = engine
        self.busy = False
        self.parser = httptools.HttpRequestParser(self)
        self.url, self.body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.engine.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.connections.discard(self)
        self.busy = False

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.url, self.body = b"", b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"GET" and self.url != b"/metrics":
            if self.engine.mood is not Mood.SILENT:
                self.transport.write(NOT_FOUND)  # it does not list its models
        elif self.engine.mood is Mood.SILENT:
            url, body = self.url, self.body
            self.busy = url != b"/metrics"
            if self.busy:
                self.engine.begun[number_in(body)] += 1
            self.engine.later(lambda: self.answer(url, body))
        else:
            if self.url != b"/metrics":
                self.engine.begun[number_in(self.body)] += 1
            self.answer(self.url, self.body)

    def answer(self, url: bytes, body: bytes) -> None:
        if self.transport.is_closing():
            return
        if url == b"/metrics":
            self.transport.write(plain(self.engine.metrics(), b"text/plain"))
            return
        number, mood = number_in(body), self.engine.mood
        self.busy = True
        if mood is Mood.DIES_BEFORE_HEADERS:
            self.transport.abort()
        elif json.loads(body)["stream"]:
            self.stream(streamed_answer(number, body), mood)
        elif mood is Mood.HELD:
            self.engine.later(lambda: self.answer(url, body))
        elif mood is Mood.DIES_MID_STREAM:
            answer = plain(whole_answer(number, body))
            self.transport.write(answer[: -len(answer) // 4])
            self.break_off()
        else:
            self.transport.write(plain(whole_answer(number, body)))
            self.busy = False

    def stream(self, pieces: list[bytes], mood: Mood) -> None:
        self.transport.write(STREAM_HEAD + chunk(pieces[0]))
        if mood is Mood.DIES_MID_STREAM:
            self.break_off()
        elif mood is Mood.HELD:
            self.engine.later(lambda: self.finish(pieces[1:]))
        else:
            asyncio.get_running_loop().call_soon(self.finish, pieces[1:])

    def finish(self, pieces: list[bytes]) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"".join(map(chunk, pieces)) + b"0\r\n\r\n")
        self.busy = False

    def break_off(self) -> None:
        """Break off once the proxy can have read what was written, which an immediate reset would discard."""
        asyncio.get_running_loop().call_later(0.01, self.transport.close)


def number_in(body: bytes) -> int:
    return int(json.loads(body)["prompt"].split(" ", 1)[0])


def plain(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (content_type, len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
