"""Commands in containers and forwarded ports, over the streams of one session."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from tests.cluster.node import network
from tests.cluster.node.pods import PodRun
from tests.cluster.node.spdy import Session, Stream

PIPES = {"stdin": "input", "stdout": "output", "stderr": "error"}
"""Streams of a command, and the parameters that ask for them."""
PART = 32768


async def execute(session: Session, words: list[str], wanted: list[str]) -> None:
    """Run a command whose streams are ``wanted``, and send its end on the stream ``error``."""
    opened: dict[str, Stream] = {}
    streams = session.streams()
    async for stream in streams:
        opened[stream.headers.get("streamtype", "")] = stream
        if opened.keys() >= set(wanted):
            break
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*words, **{name: pipe if name in opened else null for name in PIPES})
    reading = asyncio.create_task(_drain(streams))
    feeding = asyncio.create_task(_feed(opened["stdin"], process.stdin)) if process.stdin else None
    try:
        outputs = (("stdout", process.stdout), ("stderr", process.stderr))
        await asyncio.gather(*(_copy(source, opened[name]) for name, source in outputs if source))
        await opened["error"].send(_status(await process.wait()), last=True)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for task in (reading, feeding):
            if task is not None:
                task.cancel()


async def forward(session: Session, run: PodRun) -> None:
    """Connect each pair of streams with a port of the pod."""
    errors: dict[str, Stream] = {}
    tasks = set()
    async for stream in session.streams():
        request = stream.headers.get("requestid", "")
        if stream.headers.get("streamtype") == "error":
            errors[request] = stream
            continue
        task = asyncio.create_task(_connect(stream, errors.pop(request, None), run))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


async def _connect(stream: Stream, error: Stream | None, run: PodRun) -> None:
    port = int(stream.headers["port"])
    try:
        reader, writer = await asyncio.open_connection(sock=await asyncio.to_thread(network.dial, run.pause, port))
    except OSError as refused:
        if error is not None:
            await error.send(f"connection to port {port} of the pod: {refused}".encode(), last=True)
        await stream.send(b"", last=True)
        return
    try:
        await asyncio.gather(_feed(stream, writer), _copy(reader, stream))
        if error is not None:
            await error.send(b"", last=True)
    finally:
        writer.close()


async def _feed(stream: Stream, writer: asyncio.StreamWriter) -> None:
    """Write what arrives on a stream, to its end."""
    with suppress(OSError):
        while data := await stream.reader.read(PART):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _copy(reader: asyncio.StreamReader, stream: Stream) -> None:
    """Send what is read, to its end."""
    with suppress(OSError):
        while data := await reader.read(PART):
            await stream.send(data)
        await stream.send(b"", last=True)


async def _drain(streams: object) -> None:
    async for _ in streams:  # type: ignore[attr-defined]
        pass


def _status(code: int) -> bytes:
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with exit code {code}"
    failure = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": message,
               "details": {"causes": causes}}  # fmt: skip
    return json.dumps(failure).encode()
