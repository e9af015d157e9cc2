"""Closed-loop HTTP load on one loopback port, in this process; bounded in time.

``await drive(port, requests, connections=16, seconds=3)`` counts responses and refusals. Every request is a POST to
``/v1/chat/completions``; responses may be sized or chunked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle


@dataclass
class Tally:
    """The results of a load. ``latencies_s`` has one entry per response with status 200."""

    answered: int = 0
    refused: int = 0
    broken: int = 0
    latencies_s: list[float] = field(default_factory=list, repr=False)
    first_refusal: str = ""


class Client(asyncio.Protocol):
    """One connection, which sends the next request after each response until the deadline."""

    def __init__(self, requests: Iterator[bytes], deadline: float, tally: Tally, done: asyncio.Future[None]) -> None:
        self.requests, self.deadline, self.tally, self.done = requests, deadline, tally, done
        self.buffer = bytearray()
        self.head = b""
        self.end: int | None = None
        """Length of the response, head included; None for a chunked one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.began = time.perf_counter()
        if self.began >= self.deadline:
            self.transport.close()
            return
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.head and not self.begun():
            return
        if self.end is None:
            if not data.endswith(b"0\r\n\r\n"):
                return
        elif len(self.buffer) < self.end:
            return
        if self.head[9:12] == b"200":
            self.tally.answered += 1
            self.tally.latencies_s.append(time.perf_counter() - self.began)
        else:
            self.tally.refused += 1
            self.tally.first_refusal = self.tally.first_refusal or bytes(self.buffer).decode("latin-1")
        self.buffer.clear()
        self.head = b""
        self.send()

    def begun(self) -> bool:
        """Read the response's head once; return False until all of it has arrived."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head = bytes(self.buffer[:end]).lower()
        at = self.head.find(b"content-length:")
        self.end = None if at < 0 else end + 4 + int(self.head[at + 15 :].split(b"\r\n", 1)[0])
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if error or self.buffer:
            self.tally.broken += 1
        if not self.done.done():
            self.done.set_result(None)


def http_request(body: bytes, *, stream: bool = False) -> bytes:
    """Return one POST with ``body`` as bytes."""
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: bench", "content-type: application/json"]
    lines += ["x-stream: 1"] if stream else []
    lines += [f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def drive(port: int, requests: list[bytes], *, connections: int, seconds: float) -> Tally:
    """Run ``connections`` closed loops against 127.0.0.1:``port`` for ``seconds`` and return what they counted."""
    loop, tally = asyncio.get_running_loop(), Tally()
    deadline = time.perf_counter() + seconds
    ends = []
    for i in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        own = cycle(requests[i % len(requests) :] + requests[: i % len(requests)])
        await loop.create_connection(lambda own=own, done=done: Client(own, deadline, tally, done), "127.0.0.1", port)
        ends.append(done)
    await asyncio.wait_for(asyncio.gather(*ends), seconds + 30)
    return tally
