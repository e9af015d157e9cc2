"""Load that records the result of each request, and the causes that may explain it.

A request is *lost* when its client gets no answer, or two. Every result but a right answer needs a cause: something
that the test broke while the request was in progress. A result without one is ``unexplained``, and a test asserts that
there is none.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import cast

import httptools

from tests.e2e.site.fragile import request_body, streamed_answer, whole_answer

PATIENCE_S = 45.0
"""After this time without the end of an answer the request counts as unanswered."""
PAUSE_S = 0.02
"""The delay between a client's failure and its next try: a loop of refusals would starve the part that recovers."""


class Fate(Enum):
    """The result of one request as its client saw it."""

    ANSWERED = "answered, with the right bytes"
    REFUSED = "refused with a status"
    TRUNCATED = "the answer began rightly and broke off"
    UNCONNECTED = "nobody listened"
    UNANSWERED = "the connection ended without an answer"
    STUCK = "nothing came"
    WRONG = "other bytes than the engine's"
    TWICE = "more than one answer"


LOST = frozenset({Fate.UNANSWERED, Fate.STUCK, Fate.TWICE})


@dataclass(frozen=True)
class Result:
    """The course of one request. Times are those of the event loop."""

    number: int
    began: float
    ended: float
    fate: Fate
    status: int = 0
    text: str = ""
    """The sentence of a refusal."""


@dataclass
class Cause:
    """A part that was broken for a while, and the results that this may have for requests in progress."""

    name: str
    fates: frozenset[Fate]
    says: str = ""
    """Text that a refusal must contain."""
    since: float = 0.0
    until: float = float("inf")

    def explains(self, result: Result) -> bool:
        """Return whether this cause may explain ``result``."""
        overlaps = result.began <= self.until and result.ended >= self.since
        said = result.fate is not Fate.REFUSED or self.says in result.text
        return overlaps and said and result.fate in self.fates


@dataclass
class Storm:
    """Closed loops of clients, each with its own connection, until the storm is stopped."""

    port: int
    results: list[Result] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _clients: list[asyncio.Task[None]] = field(default_factory=list)

    def fates(self) -> Counter[Fate]:
        """Return the number of requests of each fate."""
        return Counter(result.fate for result in self.results)

    def explained(self, name: str) -> list[Result]:
        """Return the results that ``name`` explains."""
        causes = [cause for cause in self.causes if cause.name == name]
        failed = (result for result in self.results if result.fate is not Fate.ANSWERED)
        return [result for result in failed if any(cause.explains(result) for cause in causes)]

    def unexplained(self) -> list[Result]:
        """Return the requests without a right answer that no cause explains."""
        failed = (result for result in self.results if result.fate is not Fate.ANSWERED)
        return [result for result in failed if not any(cause.explains(result) for cause in self.causes)]

    @contextmanager
    def broken(self, name: str, *fates: Fate, says: str = "") -> Iterator[Cause]:
        """Within this context, results of requests in progress may be explained by ``name``."""
        clock = asyncio.get_running_loop().time
        cause = Cause(name, frozenset(fates), says, since=clock())
        self.causes.append(cause)
        try:
            yield cause
        finally:
            cause.until = clock()

    @contextmanager
    def raging(self, clients: int, *, size: int = 0) -> Iterator[None]:
        """Run the load while the context lasts; ``ended`` waits for its last answers."""
        over = asyncio.Event()
        self._clients += [asyncio.create_task(self._client(size, over)) for _ in range(clients)]
        try:
            yield
        finally:
            over.set()

    async def ended(self) -> None:
        """Return once every client has the end of its last request."""
        await asyncio.gather(*self._clients)
        self._clients.clear()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Return once ``condition`` holds. Raises: AssertionError if it does not in time."""
        await until(condition, what, self._state)

    async def more(self, answers: int) -> None:
        """Return once ``count`` more requests were answered that began from now on."""
        now = asyncio.get_running_loop().time()

        def answered() -> bool:
            fresh = (r for r in reversed(self.results) if r.fate is Fate.ANSWERED and r.began >= now)
            return sum(1 for _ in fresh) >= answers

        await until(answered, f"{answers} more answers", self._state)

    def _state(self) -> str:
        return f"so far {self.fates()}, last {self.results[-3:]}"

    async def _client(self, size: int, over: asyncio.Event) -> None:
        visitor = Visitor(self.port)
        while not over.is_set():
            number = next(self._numbers)
            result = await visitor.ask(number, stream=number % 2 == 0, size=size if number % 8 == 0 else 0)
            self.results.append(result)
            if result.fate is not Fate.ANSWERED:
                await asyncio.sleep(PAUSE_S)
        visitor.leave()


class Visitor(asyncio.Protocol):
    """One client with one kept connection, which it opens again after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] | None = None
        self.body = bytearray()
        self.status = 0
        self.begun = asyncio.Event()
        """Set when a piece of the answer has arrived."""
        self._complete = 0
        self._surplus = False
        """Whether bytes came after the end of an answer."""

    async def ask(self, number: int, *, stream: bool, size: int = 0, pad: int = 0) -> Result:
        """Send one request and wait for its result."""
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), request_body(number, stream=stream, size=size, pad=pad)
        fate, text = Fate.UNCONNECTED, ""
        if await self.send(sent):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.end()
            except TimeoutError:
                self.leave()
                fate = Fate.STUCK
            else:
                expected = b"".join(streamed_answer(number, sent)) if stream else whole_answer(number, sent)
                fate = self._fate(expected)
        if fate is Fate.REFUSED:
            text = self.body.decode(errors="replace")
        return Result(number, began, loop.time(), fate, self.status, text)

    async def send(self, body: bytes, *, part: int | None = None) -> bool:
        """Send a request or ``part`` of its body, over a new connection if need be; False if the port is closed."""
        loop = asyncio.get_running_loop()
        self._surplus = self._surplus or self._complete > 1
        self.body, self.status, self._complete = bytearray(), 0, 0
        self.begun.clear()
        self._ended = loop.create_future()
        if self._transport is None:
            try:
                self._transport = (await loop.create_connection(lambda: self, "127.0.0.1", self._port))[0]
            except OSError:
                return False
            # Reset instead of closing: thousands of connections must not linger in the kernel.
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body[:part])
        return True

    async def end(self) -> None:
        """Return at the end of the answer or of the connection."""
        assert self._ended is not None
        await self._ended

    def leave(self) -> None:
        """Break off the connection, even with a request in progress."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def pause(self) -> None:
        """Stop reading from the connection."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading from the connection."""
        assert self._transport is not None
        self._transport.resume_reading()

    def _fate(self, expected: bytes) -> Fate:
        if self._surplus or self._complete > 1:
            return Fate.TWICE
        if self._complete and self.status == 200:
            return Fate.ANSWERED if self.body == expected else Fate.WRONG
        if self._complete:
            return Fate.REFUSED
        if not self.status:
            return Fate.UNANSWERED
        return Fate.TRUNCATED if self.status == 200 and expected.startswith(bytes(self.body)) else Fate.WRONG

    # Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._over()

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self.body += part
        self.begun.set()

    def on_message_complete(self) -> None:
        self._complete += 1
        if not self._parser.should_keep_alive():
            self.leave()
        self._over()

    def _over(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


async def until(
    condition: Callable[[], object], what: str, say: Callable[[], object] = lambda: "", *, within_s: float = PATIENCE_S
) -> None:
    """Return once ``condition`` holds. Raises: AssertionError if it does not in time."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within_s
    while not condition():
        assert clock() < deadline, f"never: {what} {say()}"
        await asyncio.sleep(0.01)


def executed(engines: Sequence[object]) -> Counter[int]:
    """Return how often each request was begun, on any engine."""
    total: Counter[int] = Counter()
    for engine in engines:
        total.update(engine.begun)  # type: ignore[attr-defined]
    return total
