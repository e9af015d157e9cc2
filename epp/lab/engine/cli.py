"""The command ``tierwise sim``: simulated endpoints on consecutive ports, in one process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

from aiohttp import web

from epp.errors import ConfigError
from epp.lab.engine.options import SimOptions
from epp.lab.engine.preset import DEMO, PRESETS, Preset
from epp.lab.engine.served import Adapter, ServedModels
from epp.lab.engine.server import Endpoint
from epp.ports.claim import claim, refused

if TYPE_CHECKING:
    from epp.lab.engine.publisher import EventPublisher


@asynccontextmanager
async def endpoints(
    preset: Preset,
    sockets: list[socket.socket],
    *,
    speed: float = 1.0,
    publishers: Sequence[EventPublisher] = (),
    models: ServedModels | None = None,
) -> AsyncIterator[list[Endpoint]]:
    """Serve one endpoint on each of ``sockets`` while the context lasts.

    The sockets are bound; leaving the context closes them. ``publishers`` holds one for each socket, or is empty.
    ``models`` is what each endpoint serves, by default the preset's model under its own name.
    """
    async with AsyncExitStack() as stack:
        running: list[Endpoint] = []
        for sock, publisher in zip_longest(sockets, publishers):
            endpoint = Endpoint(preset, speed=speed, publisher=publisher, models=models)
            runner = web.AppRunner(
                endpoint.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, sock).start()
            running.append(endpoint)
        yield running


def bind(host: str, port: int, count: int) -> list[socket.socket]:
    """Bind ``count`` ports from ``port`` on, or free ones for 0. Raises: ConfigError when a port is taken."""
    sockets: list[socket.socket] = []
    wanted = [0] * count if port == 0 else range(port, port + count)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in wanted:
        try:
            sockets.append(socket.create_server((host, number), family=family, backlog=1024))
        except OSError as error:
            for sock in sockets:
                sock.close()
            raise refused(error, host, number, "--port") from error
    return sockets


def choose(name: str | None) -> Preset:
    """Return the preset called ``name``, or the demo's for None. Raises: ConfigError that lists the existing ones."""
    try:
        return PRESETS[name] if name else DEMO
    except KeyError:
        raise ConfigError(f"--preset={name}: there is no such preset; there are {', '.join(PRESETS)}") from None


def served_models(preset: Preset, options: SimOptions) -> ServedModels:
    """Return the names that requests may use. Raises: ConfigError for a name that is given to two models."""
    adapters = [Adapter(name, path) for name, path in options.adapters]
    try:
        return ServedModels(preset.model, options.served_model_names or (preset.model,), adapters)
    except ValueError as error:
        raise ConfigError(f"--served-model-name, --lora-modules: {error}") from error


def describe(preset: Preset, models: ServedModels | None = None) -> str:
    """Describe what is served, in lines for the console."""
    gpu, cpu = (blocks * preset.block_tokens for blocks in (preset.gpu_blocks, preset.cpu_blocks))
    names = [*models.names, *(adapter.name for adapter in models.adapters)] if models else [preset.model]
    accepted = [f"  requests ask for {', '.join(names)}"] if names != [preset.model] else []
    lines = [
        f"preset {preset.name}: simulated vLLM endpoints of {preset.model}; no model runs, the text is filler",
        f"  KV cache of each: {gpu:,} tokens in GPU memory, {cpu:,} in CPU memory",
        *accepted,
    ]
    return "\n".join([*lines, f"  {preset.note}"] if preset.note else lines)


@contextmanager
def publishing(options: SimOptions) -> Iterator[list[EventPublisher]]:
    """Yield a KV event publisher for each endpoint, or none if not wanted. Raises: ConfigError when a port is taken."""
    publishers: list[EventPublisher] = []
    if options.kv_events_port is None:
        yield publishers
        return
    import zmq

    from epp.lab.engine.publisher import EventPublisher

    try:
        for n in range(options.endpoints):
            port, replay = (wanted and wanted + n for wanted in (options.kv_events_port, options.kv_replay_port))
            for number, flag in ((port, "--kv-events-port"), (replay, "--kv-replay-port")):
                if number:  # ZeroMQ's error does not name the port
                    claim(options.host, number, flag)
            publishers.append(EventPublisher(options.host, port or 0, replay))
        yield publishers
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot publish KV events: {error}; choose another --kv-events-port") from error
    finally:
        for publisher in publishers:
            publisher.close()


async def serve(options: SimOptions) -> None:
    """Serve until SIGINT or SIGTERM arrives."""
    preset = choose(options.preset)
    models = served_models(preset, options)
    sockets = bind(options.host, options.port, options.endpoints)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with publishing(options) as publishers:
        await _serve(preset, models, sockets, publishers, stop)


async def _serve(
    preset: Preset,
    models: ServedModels,
    sockets: list[socket.socket],
    publishers: Sequence[EventPublisher],
    stop: asyncio.Event,
) -> None:
    async with endpoints(preset, sockets, publishers=publishers, models=models):
        print(describe(preset, models))
        for name, ports in (("", [p.port for p in publishers]), (", again on", [p.replay_port for p in publishers])):
            if any(ports):
                print(f"  KV events{name} port{'s' * (len(ports) > 1)} {', '.join(map(str, ports))}")
        for sock in sockets:
            host, port = sock.getsockname()[:2]
            print(f"  http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        await stop.wait()


def run_sim(options: SimOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError when it cannot start."""
    asyncio.run(serve(options))
    return 0
