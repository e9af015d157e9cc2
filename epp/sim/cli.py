"""``tierwise sim``: simulated endpoints on consecutive ports, in one process."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

from aiohttp import web

from epp.options import SimOptions
from epp.sim.preset import DEMO, PRESETS, Preset
from epp.sim.server import Endpoint

if TYPE_CHECKING:
    from epp.sim.publisher import EventPublisher


class SimError(Exception):
    """The simulator cannot start; the message says what to change."""


@asynccontextmanager
async def endpoints(
    preset: Preset, sockets: list[socket.socket], *, speed: float = 1.0, publishers: Sequence[EventPublisher] = ()
) -> AsyncIterator[list[Endpoint]]:
    """Serve one endpoint on each of ``sockets`` (bound, and closed on leaving) while the context lasts; ``publishers``
    are one for each, or none."""
    async with AsyncExitStack() as stack:
        running: list[Endpoint] = []
        for sock, publisher in zip_longest(sockets, publishers):
            endpoint = Endpoint(preset, speed=speed, publisher=publisher)
            runner = web.AppRunner(
                endpoint.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, sock).start()
            running.append(endpoint)
        yield running


def bind(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets on ``count`` ports from ``port`` on, or on free ones for 0. Raises: SimError when one is taken."""
    sockets: list[socket.socket] = []
    wanted = [0] * count if port == 0 else range(port, port + count)
    try:
        for number in wanted:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sockets.append(socket.create_server((host, number), family=family, backlog=1024))
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise SimError(
            f"cannot listen on {host}:{wanted[len(sockets)]}: {error.strerror}; choose another --port"
        ) from error
    return sockets


def choose(name: str | None) -> Preset:
    """The preset called ``name``, the demo's for None. Raises: SimError naming the known ones."""
    try:
        return PRESETS[name] if name else DEMO
    except KeyError:
        raise SimError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}") from None


def describe(preset: Preset) -> str:
    """What is served, for a person."""
    gpu, cpu = (blocks * preset.block_tokens for blocks in (preset.gpu_blocks, preset.cpu_blocks))
    lines = [
        f"preset {preset.name}: simulated vLLM endpoints of {preset.model}; no model runs, the text is filler",
        f"  KV cache of each: {gpu:,} tokens in GPU memory, {cpu:,} in CPU memory",
    ]
    return "\n".join([*lines, f"  {preset.note}"] if preset.note else lines)


@contextmanager
def publishing(options: SimOptions) -> Iterator[list[EventPublisher]]:
    """A publisher of KV events for each endpoint, where they are wanted. Raises: SimError when a port is taken."""
    publishers: list[EventPublisher] = []
    if options.kv_events_port is None:
        yield publishers
        return
    import zmq

    from epp.sim.publisher import EventPublisher

    try:
        for n in range(options.endpoints):
            port, replay = (wanted and wanted + n for wanted in (options.kv_events_port, options.kv_replay_port))
            publishers.append(EventPublisher(options.host, port or 0, replay))
        yield publishers
    except zmq.ZMQError as error:
        raise SimError(f"cannot publish KV events: {error}; choose another --kv-events-port") from error
    finally:
        for publisher in publishers:
            publisher.close()


async def serve(options: SimOptions) -> None:
    """Serve until SIGINT or SIGTERM."""
    preset = choose(options.preset)
    sockets = bind(options.host, options.port, options.endpoints)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with publishing(options) as publishers:
        await _serve(preset, sockets, publishers, stop)


async def _serve(
    preset: Preset, sockets: list[socket.socket], publishers: Sequence[EventPublisher], stop: asyncio.Event
) -> None:
    async with endpoints(preset, sockets, publishers=publishers):
        print(describe(preset))
        for name, ports in (("", [p.port for p in publishers]), (", again on", [p.replay_port for p in publishers])):
            if any(ports):
                print(f"  KV events{name} port{'s' * (len(ports) > 1)} {', '.join(map(str, ports))}")
        for sock in sockets:
            host, port = sock.getsockname()[:2]
            print(f"  http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        await stop.wait()


def run_sim(options: SimOptions) -> int:
    """Run the command; the process's exit status."""
    try:
        asyncio.run(serve(options))
    except SimError as error:
        print(f"tierwise sim: {error}", file=sys.stderr)
        return 1
    return 0
