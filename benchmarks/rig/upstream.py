"""A model server that costs little to run: a fixed response from every loopback address.

Run: ``python -m benchmarks.rig.upstream PORT [--pieces 100 --gap-ms 5] [--metrics-bytes 1500]``. One process listens on
all of 127.0.0.0/8, so ``127.0.0.1:PORT`` to ``127.0.0.200:PORT`` are as many endpoints.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop

ANSWER = (
    b'{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":"ok","finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201,"prompt_tokens_details":{"cached_tokens":64}}}'
)
PIECE = b'data: {"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":" word"}]}\n\n'
LAST = b'data: {"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":100}}\n\ndata: [DONE]\n\n'


def plain(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (content_type, len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


NEXT = chunk(PIECE)


def metrics_text(size: int) -> bytes:
    """Return the lines of vLLM's ``/metrics`` on queue and cache, padded to ``size`` bytes with histogram lines."""
    head = (
        'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="9271"} 1.0\n'
    )
    line = 'vllm:e2e_request_latency_seconds_bucket{engine="0",le="%d",model_name="m"} 0.0\n'
    lines: list[str] = []
    length = len(head)
    while length < size:
        lines.append(line % len(lines))
        length += len(lines[-1])
    half = len(lines) // 2  # what is read lies in the middle, as in a real server's answer
    return "".join([*lines[:half], head, *lines[half:]]).encode()


class Ticker:
    """Sends a piece of every streamed response at each tick; one timer for all keeps the endpoint cheap."""

    def __init__(self, pieces: int, gap_s: float) -> None:
        self.pieces, self.gap_s = pieces, gap_s
        self.left: dict[asyncio.WriteTransport, int] = {}

    def begin(self, transport: asyncio.WriteTransport) -> None:
        self.left[transport] = self.pieces
        if len(self.left) == 1:
            asyncio.get_running_loop().call_later(self.gap_s, self.tick)

    def tick(self) -> None:
        for transport, left in list(self.left.items()):
            if left and not transport.is_closing():
                transport.write(NEXT)
                self.left[transport] = left - 1
            else:
                del self.left[transport]
                transport.write(chunk(LAST) + b"0\r\n\r\n")
        if self.left:
            asyncio.get_running_loop().call_later(self.gap_s, self.tick)


class Upstream(asyncio.Protocol):
    """Responds to every request at once; streams a completion in pieces when a header requests it."""

    def __init__(self, metrics: bytes, ticker: Ticker) -> None:
        self.metrics, self.ticker = metrics, ticker
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            stop = self.end_of_body(head, end + 4)
            if stop < 0:
                return
            self.buffer = self.buffer[stop:]
            self.answer(head)

    def end_of_body(self, head: bytes, start: int) -> int:
        """Return where the next request begins; -1 until the whole body is here. In full duplex Envoy sends chunks."""
        if b"transfer-encoding: chunked" in head:
            last = self.buffer.find(b"\r\n0\r\n\r\n", start - 2)  # no JSON text has a bare line end
            return last + 7 if last >= 0 else -1
        at = head.find(b"content-length:")
        stop = start + (int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0)
        return stop if len(self.buffer) >= stop else -1

    def answer(self, head: bytes) -> None:
        if head.startswith(b"get /metrics"):
            self.transport.write(plain(self.metrics, b"text/plain"))
        elif self.ticker.pieces and b"x-stream: 1" in head:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            self.ticker.begin(self.transport)
        else:
            self.transport.write(plain(ANSWER))


async def serve(port: int, metrics_bytes: int, pieces: int, gap_s: float) -> None:
    metrics, ticker = metrics_text(metrics_bytes), Ticker(pieces, gap_s)
    server = await asyncio.get_running_loop().create_server(
        lambda: Upstream(metrics, ticker), "0.0.0.0", port, backlog=4096
    )
    print("ready", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--pieces", type=int, default=100)
    parser.add_argument("--gap-ms", type=float, default=5)
    parser.add_argument("--metrics-bytes", type=int, default=1500)
    args = parser.parse_args()
    uvloop.run(serve(args.port, args.metrics_bytes, args.pieces, args.gap_ms / 1000))


if __name__ == "__main__":
    main()
