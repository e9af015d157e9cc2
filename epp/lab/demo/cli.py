"""The command ``tierwise demo``: measures here and now what tier awareness gains."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console

from epp.errors import ConfigError
from epp.lab.demo import load, screen
from epp.lab.demo.arms import SEED_CPU_BLOCKS, Arm, arms
from epp.lab.demo.counters import Watch
from epp.lab.demo.options import DemoOptions
from epp.lab.demo.result import Result, summarise
from epp.lab.demo.servers import look, served_model
from epp.lab.demo.stack import DemoError, router, simulated
from epp.lab.demo.workload import Workload
from epp.lab.engine.preset import DEMO
from epp.ports.resolve import resolve
from epp.printing.prose import Prose, console_for, show
from epp.standalone.leftovers import kept_from_tidying

ENDPOINTS = 4
SHOWN_EVERY_S = 0.5
INTERRUPTED = 130


def run_demo(options: DemoOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for faults known before anything runs."""
    console = console_for()
    if options.json is not None:
        check_writable(options.json)
    try:
        results = asyncio.run(until_terminated(compare(options, console)))
    except DemoError as error:
        print(f"tierwise demo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return 1 if any(result.errors for result in results) else 0


def check_writable(path: Path) -> None:
    """Check that ``path`` can be written, before two minutes of work. Raises: ConfigError if it cannot."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigError(f"--json={path}: cannot be written: {error.strerror}") from error


async def until_terminated(comparison: Coroutine[None, None, list[Result]]) -> list[Result]:
    """Return the results of ``comparison``. SIGTERM cancels it, like Ctrl-C, so that what it started ends in order."""
    task = asyncio.ensure_future(comparison)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def compare(options: DemoOptions, console: Console, workload: Workload | None = None) -> list[Result]:
    """Run every arm, show each, then compare them all. ``workload`` replaces the one of the options."""
    own = options.endpoints
    workload = workload or await chosen(options)
    introduce(console, workload, own)
    results: list[Result] = []
    for arm in arms(SEED_CPU_BLOCKS if own else DEMO.cpu_blocks):
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tierwise-demo-")))
            stack.enter_context(kept_from_tidying(folder))
            with console.status(f"{arm.title}: starting ..."):
                addresses = await stack.enter_async_context(endpoints(folder, own))
                url = await stack.enter_async_context(router(folder, arm, addresses, options.envoy))
            results.append(await measure(console, arm, workload, url, addresses))
    show(console, [Prose(""), screen.comparison(results)])
    conclude(console, own)
    return results


async def chosen(options: DemoOptions) -> Workload:
    """Return the demo's workload, or one of the same shape for the user's endpoints."""
    workload = await sized(options.endpoints) if options.endpoints else Workload()
    return workload.quick() if options.quick else workload


async def sized(own: tuple[str, ...]) -> Workload:
    """Return a workload of the same shape for the user's endpoints."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        servers = await look(session, own)
    return Workload().sized(servers.gpu_tokens, servers.max_model_len)


@asynccontextmanager
async def endpoints(folder: Path, own: tuple[str, ...]) -> AsyncIterator[list[str]]:
    """Yield the addresses of the user's endpoints, or of fresh simulated ones."""
    if own:
        yield await resolve(own)
        return
    async with simulated(folder, ENDPOINTS, DEMO.name) as addresses:
        yield addresses


async def measure(console: Console, arm: Arm, workload: Workload, url: str, addresses: list[str]) -> Result:
    """Send the whole workload through ``url`` and show its progress."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        model = (await served_model(session, addresses[0])).id
        watch = Watch(session, addresses)
        await watch.read()
        with screen.Progress(console, arm.title, workload.requests) as progress:
            showing = asyncio.create_task(keep_showing(watch, progress))
            prompts = workload.prompts(arm.name)
            began = asyncio.get_running_loop().time()
            samples = await load.run(url, model, prompts, workload.concurrency, progress.sample)
            duration_s = asyncio.get_running_loop().time() - began
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        await watch.read()
    result = summarise(arm.name, arm.title, samples, duration_s, watch.total)
    console.print(f"[bold]{arm.title}[/bold]: {result.requests} requests in {duration_s:.1f} s")
    show(console, [screen.endpoint_table(watch.now)])
    for error, count in result.errors.items():
        console.print(f"  {count} failed: {error}", style="red", markup=False)
    return result


async def keep_showing(watch: Watch, progress: screen.Progress) -> None:
    """Read and show the counters until cancelled."""
    while True:
        await watch.read()
        progress.show(watch.now, time.monotonic())
        await asyncio.sleep(SHOWN_EVERY_S)


def introduce(console: Console, workload: Workload, own: tuple[str, ...]) -> None:
    """Print what is going to happen, and what is simulated."""
    paragraphs = []
    if own:
        paragraphs.append(f"{len(own)} endpoints of yours: {', '.join(own)}")
    else:
        gpu, cpu = (ENDPOINTS * blocks * DEMO.block_tokens for blocks in (DEMO.gpu_blocks, DEMO.cpu_blocks))
        paragraphs.append(
            f"{ENDPOINTS} SIMULATED vLLM endpoints (no model runs) behind a real Envoy and the real picker."
        )
        paragraphs.append(DEMO.note)
        paragraphs.append(f"All GPU caches together hold {gpu:,} tokens, all CPU tiers {cpu:,}.")
    paragraphs.append(
        f"Workload: {workload.requests} requests in {workload.groups} groups; the requests of a group share a system "
        f"prompt of {workload.system_tokens:,} tokens ({workload.shared_tokens:,} in all); "
        f"{workload.concurrency} at a time.\n"
    )
    show(console, map(Prose, paragraphs))


def conclude(console: Console, own: tuple[str, ...]) -> None:
    """Print what the figures mean, and what to do next."""
    kept_apart = "prompts of its own" if own else "empty caches"
    figures = (
        "x: the multiple of round robin's. TTFT as the client sees it; hits as the endpoints count them, in shares of"
    )
    paragraphs = [f"{figures} the prompt tokens. Each line is a run of its own with {kept_apart}."]
    if not own:
        paragraphs += [
            "\nThe endpoints were simulated. To send requests to your own vLLM servers, at port 8081:",
            "  tierwise standalone --endpoint HOST:PORT --endpoint HOST:PORT",
            "and for this comparison on them:",
            "  tierwise demo --endpoint HOST:PORT --endpoint HOST:PORT",
        ]
    show(console, map(Prose, paragraphs))
