"""The counts of ext-proc streams, on both transports."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from grpc import StatusCode, aio

from epp.metrics.gauges import Histograms
from epp.server.settings import Transport
from epp.server.stream_counts import StreamCounts, code_name
from epp.server.transport import open_server
from epp.wire.http2.limits import Limits
from epp.wire.service import Call, Status

PATH = "/test.Service/Method"


class Does:
    """A handler that does what each message requests."""

    def __init__(self, call: Call) -> None:
        self._call = call
        if ("refuse", "yes") in call.metadata:
            raise ZeroDivisionError

    def received(self, message: bytes) -> None:
        if message == b"fail":
            raise ZeroDivisionError
        if message == b"wrong":
            self._call.finish(Status.INVALID_ARGUMENT, "no")
        elif message:
            self._call.send(message)

    def half_closed(self) -> None:
        self._call.finish()

    def cancelled(self) -> None:
        pass


async def counted(transport: Transport) -> StreamCounts:
    """Run one stream of each kind and return the counters."""
    counts = StreamCounts(asyncio.get_running_loop().time)
    server = open_server(transport, counts.watching({PATH: Does}), Limits(), None)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.stream_stream(PATH)
            left = method()
            await left.write(b"hello")
            assert await left.read() == b"hello"
            assert counts.open == 1
            left.cancel()
            for message, metadata, code in (
                (b"", (), StatusCode.OK),
                (b"wrong", (), StatusCode.INVALID_ARGUMENT),
                (b"fail", (), StatusCode.INTERNAL),
                (b"", (("refuse", "yes"),), StatusCode.INTERNAL),
            ):
                call = method(iter([message]), metadata=metadata)
                with suppress(aio.AioRpcError):
                    while await call.read():
                        pass
                assert await call.code() is code
    finally:
        await server.drain(5.0)
        await server.stop()
    return counts


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_every_stream_is_counted_once_with_its_status(transport: Transport) -> None:
    counts = asyncio.run(counted(transport))
    assert counts.open == 0
    assert counts.ended == {"Canceled": 1, "OK": 1, "InvalidArgument": 1, "Internal": 2}
    assert sum(counts.durations.counts) == 5
    (durations,) = (r for r in counts.readings() if isinstance(r, Histograms))
    assert durations.metric.name == "llm_d_epp_extproc_stream_duration_seconds"


def test_statuses_are_named_as_go_names_them() -> None:
    assert [code_name(status) for status in (Status.OK, Status.CANCELLED, Status.DEADLINE_EXCEEDED)] == [
        "OK",
        "Canceled",
        "DeadlineExceeded",
    ]
