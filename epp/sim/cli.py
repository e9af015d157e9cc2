"""``tierwise sim``: simulated endpoints on consecutive ports, in one process."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from epp.options import SimOptions
from epp.sim.preset import DEMO, PRESETS, Preset
from epp.sim.server import Endpoint


class SimError(Exception):
    """The simulator cannot start; the message says what to change."""


@asynccontextmanager
async def endpoints(
    preset: Preset, sockets: list[socket.socket], *, speed: float = 1.0
) -> AsyncIterator[list[Endpoint]]:
    """Serve one endpoint on each of ``sockets`` (bound, and closed on leaving) while the context lasts."""
    async with AsyncExitStack() as stack:
        running: list[Endpoint] = []
        for sock in sockets:
            endpoint = Endpoint(preset, speed=speed)
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


async def serve(options: SimOptions) -> None:
    """Serve until SIGINT or SIGTERM."""
    preset = choose(options.preset)
    sockets = bind(options.host, options.port, options.endpoints)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with endpoints(preset, sockets):
        print(describe(preset))
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
