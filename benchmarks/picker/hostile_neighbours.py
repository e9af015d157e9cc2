"""What does an innocent neighbour feel beside each attack on the ext-proc port?

A picker (``tierwise serve``, a process of its own) answers one neighbour, 50 exchanges a second by grpc, each a stream
of one message; then a second client, also a process of its own, attacks for some seconds, on loopback from an address
of its own (the row "50 connections" sends header blocks on so many). The neighbour's waiting is counted from when an
exchange was due. The attacker ends by itself, with its time.

Run: ``python -m benchmarks.picker.hostile_neighbours [--seconds 6] [--only settings]``.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import uvloop
from grpc import aio
from hpack import Encoder

from benchmarks.picker.cpu_per_request import child, cpu_ns
from epp.extproc.service import PROCESS
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.ports.claim import claim
from epp.wire.http2.fields import block

LOOPBACK, ATTACKER = "127.0.0.1", "127.0.0.2"
RATE, BEFORE_S, AFTER_S = 50, 4.0, 3.0
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 8, 9
HEAD = block(
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", PROCESS.encode()), (b"content-type", b"application/grpc")
)
HUFFMAN_37K, HUFFMAN_9K = (Encoder().encode([("x", "~" * length)]) for length in (22_700, 5_600))
"""Fields of 37 and 9 KB of Huffman code."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">HBBBI", len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload


def connected(port: int) -> socket.socket:
    client = socket.create_connection((LOOPBACK, port), timeout=10.0, source_address=(ATTACKER, 0))
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))
    return client


def opened(port: int, streams: int, head: bytes = HEAD, first: int = 1) -> socket.socket:
    client = connected(port)
    client.sendall(b"".join(frame(HEADERS, 4, first + 2 * i, head) for i in range(streams)))
    return client


# Each attack is one step, which is repeated on a new connection when the picker ends the old one.


def settings(port: int) -> None:
    with opened(port, 19_000) as client:
        one = b"".join(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535 + (i & 1))) for i in range(900))
        client.sendall(one)
        time.sleep(0.2)


def headers(port: int) -> None:
    """Three references to a field of 4,000 bytes, and a literal that differs, 19,000 times."""
    with connected(port) as client:
        field = b"\x40\1x\x7f\xa1\x1e" + b"v" * 4_000
        client.sendall(frame(HEADERS, 4, 1, HEAD + field))
        for start in range(3, 38_000, 500):
            client.sendall(
                b"".join(
                    frame(HEADERS, 4, i, HEAD + b"\xbe\xbe\xbe\0\1n\6%06d" % i)
                    for i in range(start, start + 500)
                    if i & 1
                )
            )
        time.sleep(1.0)


def late_headers(port: int) -> None:
    with opened(port, 1) as client:
        client.sendall(frame(WINDOW_UPDATE, 0, 1, bytes(4)))
        late = frame(HEADERS, 0, 1, HUFFMAN_37K[:16_000])
        late += frame(CONTINUATION, 0, 1, HUFFMAN_37K[16_000:32_000]) + frame(CONTINUATION, 4, 1, HUFFMAN_37K[32_000:])
        for _ in range(300):
            client.sendall(late)


def header_blocks(port: int) -> None:
    """Valid requests with much Huffman code."""
    with connected(port) as client:
        for i in range(1, 38_000, 2):
            client.sendall(frame(HEADERS, 4, i, HEAD + HUFFMAN_9K))


def tiny_data(port: int) -> None:
    with opened(port, 1) as client:
        client.sendall(frame(DATA, 0, 1, struct.pack(">BI", 0, 4_000_000)))
        many = frame(DATA, 0, 1, b"xy") * 20_000
        while True:
            client.sendall(many)


def unsent(port: int) -> None:
    """Send bodies of 30 MB, and never allow the answers to be sent."""
    message = ProcessingRequest()
    message.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/completions")
    head = message.SerializeToString()
    piece = ProcessingRequest()
    piece.request_body.body = b"x" * 60_000
    body = piece.SerializeToString()
    piece.request_body.end_of_stream = True
    pieces = [head, *[body] * 500, piece.SerializeToString()]
    with opened(port, 2) as client:
        client.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        for stream in (1, 3):
            for number, one in enumerate(pieces):
                data = struct.pack(">BI", 0, len(one)) + one
                parts = [frame(DATA, 0, stream, data[i : i + 16_384]) for i in range(0, len(data), 16_384)]
                client.sendall(b"".join(parts))
                if number % 8 == 0:
                    wait_for_windows(client)
        time.sleep(3.0)


def wait_for_windows(client: socket.socket) -> None:
    """Return once the picker has read all that was sent, and opened its windows again."""
    client.sendall(frame(PING, 0, 0, bytes(8)))
    seen = b""
    while frame(PING, 1, 0, bytes(8)) not in seen:
        if not (more := client.recv(65_536)):
            raise ConnectionResetError
        seen = seen[-17:] + more


def connections(port: int) -> None:
    clients = [connected(port) for _ in range(500)]
    time.sleep(0.5)
    for client in clients:
        client.close()


def silent_streams(port: int) -> None:
    with opened(port, 19_000):
        time.sleep(1.0)


ATTACKS: dict[str, tuple[Callable[[int], None], int]] = {
    "settings": (settings, 5),
    "headers": (headers, 5),
    "late headers": (late_headers, 5),
    "header blocks": (header_blocks, 5),
    "50 connections": (header_blocks, 50),
    "tiny data": (tiny_data, 5),
    "unsent answers": (unsent, 12),
    "connections": (connections, 4),
    "silent streams": (silent_streams, 5),
}
"""What to repeat, and on how many connections at once."""


def attack(name: str, port: int, seconds: float) -> None:
    """Attack for so long, from threads of this process, and end."""
    step, count = ATTACKS[name]
    print("ready", flush=True)
    until = time.monotonic() + seconds

    def repeat() -> None:
        while time.monotonic() < until:
            try:
                step(port)
            except OSError:
                time.sleep(0.05)

    for _ in range(count):
        threading.Thread(target=repeat, daemon=True).start()
    time.sleep(seconds)


class Neighbour:
    """Asks 50 times a second, whatever becomes of it. Units: milliseconds from when an exchange was due."""

    def __init__(self, channel: aio.Channel) -> None:
        self._call = channel.stream_stream(PROCESS)
        self.waits: list[float] = []
        self.failures = 0
        message = ProcessingRequest()
        message.request_headers.end_of_stream = True
        message.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/models")
        self._message = message.SerializeToString()

    async def ask(self, due: float) -> None:
        try:
            call = self._call(timeout=20)
            await call.write(self._message)
            await call.read()
            self.waits.append((time.monotonic() - due) * 1e3)
            await call.done_writing()
            await call.code()
        except grpc.RpcError:
            self.failures += 1

    async def ask_for(self, seconds: float) -> str:
        self.waits.clear()
        self.failures = 0
        tasks, start = [], time.monotonic()
        for number in range(int(seconds * RATE)):
            due = start + number / RATE
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(self.ask(due)))
        await asyncio.gather(*tasks)
        ordered = sorted(self.waits) or [0.0]
        failed = f" {self.failures} failed" if self.failures else ""
        return f"{ordered[len(ordered) // 2]:.0f}/{ordered[int(len(ordered) * 0.99)]:.0f}{failed}"


def rss_mb(pid: int, which: str = "VmRSS") -> float:
    match = re.search(which + r":\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def counters(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    found = (re.fullmatch(r"tierwise_wire_(\S+?)(?:_total)?((?:\{.*\})?) (\S+)", line) for line in lines)
    kinds = (
        "floods",
        "connection_faults",
        "refused",
        "silent",
        "crowded",
        "displaced",
        "turns_cut",
        "header_waits",
        "resets_sent",
    )
    held = {m[1] + m[2]: float(m[3]) for m in found if m and m[1].startswith(kinds)}
    for line in lines:
        if line.startswith("tierwise_held_request_bytes_refusals_total"):
            held["held refusals"] = float(line.split()[1])
    return held


async def row(name: str, seconds: float, folder: Path) -> str:
    ports = [claim(LOOPBACK, 0, "port") for _ in range(3)]
    flags = ["serve", f"--host={LOOPBACK}", f"--grpc-port={ports[0]}", f"--metrics-port={ports[1]}", "--debug=false"]
    flags += [f"--grpc-health-port={ports[2]}", "--secure-serving=false", f"--endpoint={LOOPBACK}:9"]
    flags += ["--max-held-bytes=64MiB"]
    log = folder / f"{name}.log"
    async with (
        child("epp.commandline.cli", *flags, ready="serving ext-proc", log=log) as picker,
        aio.insecure_channel(f"{LOOPBACK}:{ports[0]}") as channel,
    ):
        neighbour = Neighbour(channel)
        await neighbour.ask_for(1.0)
        before = await neighbour.ask_for(BEFORE_S)
        command = ("-m", "benchmarks.picker.hostile_neighbours", "--attack", name, "--port", str(ports[0]))
        attacker = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE
        )
        assert attacker.stdout is not None
        await attacker.stdout.readline()
        rss, cpu, begun = rss_mb(picker.pid), cpu_ns(picker.pid), time.monotonic()
        during = await neighbour.ask_for(seconds)
        share = (cpu_ns(picker.pid) - cpu) / 1e9 / (time.monotonic() - begun)
        peak = rss_mb(picker.pid, "VmHWM") - rss
        await attacker.wait()
        await asyncio.sleep(AFTER_S)
        after = rss_mb(picker.pid) - rss
        told = await asyncio.to_thread(counters, ports[1])
    names = ", ".join(f"{key} {value:.0f}" for key, value in told.items() if value)
    return f"{name:<15} {before:>8} -> {during:<18} {share:>5.2f} {peak:>+7.0f} {after:>+7.0f}  {names}"


async def main(seconds: float, only: str | None) -> None:
    print("waiting of the neighbour, p50/p99 in ms, before -> during; CPU in cores; RSS in MB, highest and 3 s after")
    with tempfile.TemporaryDirectory() as folder:
        for name in ATTACKS:
            if only in (None, name):
                print(await row(name, seconds, Path(folder)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--attack", choices=ATTACKS, help="be the attacker; the benchmark starts it so")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.port, options.seconds)
    else:
        uvloop.run(main(options.seconds, options.only))
