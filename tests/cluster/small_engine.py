"""A server that answers as an engine without any work, so that one process stands for a thousand of them.

python -m tests.cluster.small_engine
"""

from __future__ import annotations

import asyncio
import json
import re

from tests.cluster.workloads import MODEL

PORT = 8000
LABEL = f'{{model_name="{MODEL}"}}'
METRICS = "".join(
    f"# TYPE vllm:{name} gauge\nvllm:{name}{LABEL} 0\n"
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
)
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def answer(content: str, kind: str) -> bytes:
    """Return a whole response of status 200."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()


PAGE = answer(METRICS, "text/plain; version=0.0.4")
COMPLETION = answer(json.dumps({"object": "text_completion", "model": MODEL, "choices": []}), "application/json")
MODELS = answer(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}), "application/json")


class Engine(asyncio.Protocol):
    """One connection, whose requests come one after the other."""

    def __init__(self) -> None:
        self._read = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self._read, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._read) < whole:
                return
            line, self._read = self._read[:end].split(b"\r\n", 1)[0], self._read[whole:]
            assert self._transport is not None
            if b" /metrics" in line:
                self._transport.write(PAGE)
            else:
                self._transport.write(COMPLETION if line.startswith(b"POST") else MODELS)


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Engine, "0.0.0.0", PORT, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
