"""Every exchange on both transports, with grpcio's asynchronous and synchronous clients."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
import uvloop
from grpc import aio

from epp.wire.aio import GrpcioServer
from epp.wire.http2.limits import Limits
from epp.wire.server import WireServer
from epp.wire.service import Call, Status

TRANSPORTS = {"wire": WireServer, "grpcio": GrpcioServer}
BLOCK = bytes(65_536)
LIMITS = Limits(max_receive_message_bytes=5_000_000)


class Service:
    """Records what the handlers received, and lets tests wait for them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[Call] = []
        self.arrived = threading.Event()
        self.ended = threading.Event()

    def methods(self) -> dict[str, Callable[[Call], Any]]:
        return {
            "/test.S/Echo": lambda call: Echo(self, call),
            "/test.S/Sum": lambda call: Sum(self, call),
            "/test.S/Refuse": lambda call: Refuse(self, call),
            "/test.S/Wait": lambda call: Wait(self, call),
            "/test.S/Broken": lambda call: Broken(self, call),
            "/test.S/Early": lambda call: Early(self, call),
            "/test.S/Torrent": lambda call: Torrent(self, call),
            "/test.S/Metadata": lambda call: Metadata(self, call),
        }


class Echo:
    def __init__(self, service: Service, call: Call) -> None:
        self.service, self.call = service, call
        service.calls.append(call)

    def received(self, message: bytes) -> None:
        self.call.send(message)

    def half_closed(self) -> None:
        self.service.seen.append("half-closed")
        self.service.ended.set()
        self.call.finish()

    def cancelled(self) -> None:
        self.service.seen.append("cancelled")
        self.service.ended.set()


class Sum(Echo):
    """Implements client streaming, with one answer at the end."""

    def __init__(self, service: Service, call: Call) -> None:
        super().__init__(service, call)
        self.total = 0

    def received(self, message: bytes) -> None:
        self.total += len(message)

    def half_closed(self) -> None:
        self.call.send(str(self.total).encode())
        self.call.finish()


class Refuse(Echo):
    def received(self, message: bytes) -> None:
        self.call.finish(Status.RESOURCE_EXHAUSTED, f"nein, „{message.decode()}“ 100 %")


class Wait(Echo):
    def received(self, message: bytes) -> None:
        self.service.seen.append("waiting")
        self.service.arrived.set()

    def half_closed(self) -> None:
        pass


class Broken(Echo):
    def received(self, message: bytes) -> None:
        raise RuntimeError("secret")


class Early(Echo):
    """Finishes after the first message, whatever else the client sends."""

    def received(self, message: bytes) -> None:
        self.call.send(message)
        self.call.finish()
        self.call.send(b"after the end")
        self.call.finish(Status.INTERNAL)


class Torrent(Echo):
    """Sends more than any client will read."""

    def received(self, message: bytes) -> None:
        for _ in range(2_000):
            self.call.send(BLOCK)


class Metadata(Echo):
    def __init__(self, service: Service, call: Call) -> None:
        super().__init__(service, call)
        self.metadata = call.metadata

    def received(self, message: bytes) -> None:
        own = [pair for pair in self.metadata if not pair[0].startswith("user-agent")]
        self.call.send(repr((own, len(self.call.metadata), self.call.peer.rpartition(":")[0])).encode())


async def turn() -> None:
    """Take one turn of the server's loop."""


class Running:
    """A server on its own loop and thread, so that both kinds of client can be used from the test."""

    def __init__(self, kind: str) -> None:
        self.service = Service()
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = self.call(self._start(TRANSPORTS[kind]))

    async def _start(self, factory: Any) -> WireServer | GrpcioServer:
        server: WireServer | GrpcioServer = factory(self.service.methods(), limits=LIMITS)
        self.port = await server.start("127.0.0.1", 0)
        return server

    def call(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(20)

    def close(self) -> None:
        self.call(self.server.drain(1))
        self.call(turn())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(params=sorted(TRANSPORTS))
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(request.param)
    yield running
    running.close()


@pytest.fixture
def channel(running: Running) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{running.port}", options) as channel:
        yield channel


def failing(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_unary(channel: grpc.Channel) -> None:
    assert channel.unary_unary("/test.S/Echo")(b"hello", timeout=10) == b"hello"


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 70_000, 3_000_000])
def test_messages_of_every_size(channel: grpc.Channel, size: int) -> None:
    body = bytes(size)
    assert channel.unary_unary("/test.S/Echo")(body, timeout=10) == body


def test_client_streaming(channel: grpc.Channel) -> None:
    assert channel.stream_unary("/test.S/Sum")(iter([b"ab", b"", b"cde"]), timeout=10) == b"5"


def test_bidirectional_in_lockstep(channel: grpc.Channel) -> None:
    """The client sends each message after the answer to the one before."""
    answers: list[bytes] = []
    step = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        for n in range(5):
            step.acquire()
            yield bytes(n)

    for answer in channel.stream_stream("/test.S/Echo")(requests(), timeout=10):
        answers.append(answer)
        step.release()
    assert answers == [bytes(n) for n in range(5)]


def test_an_empty_request_stream(channel: grpc.Channel) -> None:
    assert list(channel.stream_stream("/test.S/Echo")(iter([]), timeout=10)) == []


def test_status_and_message(channel: grpc.Channel) -> None:
    code, text = failing(lambda: channel.unary_unary("/test.S/Refuse")("schön".encode(), timeout=10))
    assert (code, text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "nein, „schön“ 100 %")


def test_unknown_method(channel: grpc.Channel) -> None:
    code, _ = failing(lambda: channel.unary_unary("/test.S/Nobody")(b"", timeout=10))
    assert code is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_above_the_limit(channel: grpc.Channel) -> None:
    code, text = failing(lambda: channel.unary_unary("/test.S/Echo")(bytes(5_000_001), timeout=10))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "5000001" in text


def test_deadline(channel: grpc.Channel, running: Running) -> None:
    code, _ = failing(lambda: channel.unary_unary("/test.S/Wait")(b"x", timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert running.service.ended.wait(10)
    assert running.service.seen == ["waiting", "cancelled"]


def test_cancellation(channel: grpc.Channel, running: Running) -> None:
    call = channel.stream_stream("/test.S/Echo")(endless(b"x"))
    assert next(call) == b"x"
    call.cancel()
    check_cancelled(running)


def check_cancelled(running: Running) -> None:
    """Check that the call was cancelled; grpcio sometimes reports it as finished instead (epp.wire.aio)."""
    assert running.service.ended.wait(10)
    known = [["cancelled"]] if isinstance(running.server, WireServer) else [["cancelled"], ["half-closed"]]
    assert running.service.seen in known


def endless(first: bytes) -> Iterator[bytes]:
    yield first
    threading.Event().wait(1)


def test_a_client_that_goes_away(running: Running) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        call = channel.stream_stream("/test.S/Echo")(endless(b"x"))
        assert next(call) == b"x"
    check_cancelled(running)


def test_a_client_that_does_not_read_costs_its_call(channel: grpc.Channel, running: Running) -> None:
    call = channel.stream_stream("/test.S/Torrent")(endless(b"x"))
    assert running.service.ended.wait(10)
    assert running.service.seen == ["cancelled"]
    call.cancel()
    assert channel.unary_unary("/test.S/Echo")(b"fine", timeout=10) == b"fine"


def test_a_finished_call_is_garbage_collected(channel: grpc.Channel, running: Running) -> None:
    """A timer that waits for a call's first message would keep the call for a minute."""
    for _ in range(10):
        channel.unary_unary("/test.S/Echo")(b"x", timeout=10)
    running.service.calls.clear()
    for _ in range(20):
        running.call(turn())
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, Echo) and one.service is running.service]
        if len(left) <= 1:  # grpcio may still hold the last one
            break
    assert len(left) <= 1


def test_a_handler_that_raises(channel: grpc.Channel, running: Running, caplog: pytest.LogCaptureFixture) -> None:
    code, text = failing(lambda: channel.unary_unary("/test.S/Broken")(b"x", timeout=10))
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in text
    assert "secret" in caplog.text
    assert running.service.seen == ["cancelled"]
    assert running.server.statistics().handler_errors == 1
    assert channel.unary_unary("/test.S/Echo")(b"fine", timeout=10) == b"fine"


def test_a_server_that_finishes_first(channel: grpc.Channel) -> None:
    call = channel.stream_stream("/test.S/Early")(endless(b"x"), timeout=10)
    assert list(call) == [b"x"]
    assert call.code() is grpc.StatusCode.OK


def test_metadata_and_peer(channel: grpc.Channel) -> None:
    metadata = (("key", "value"), ("raw-bin", b"\x01\x02\x03\xff"), ("key", "again"))
    answer = channel.unary_unary("/test.S/Metadata")(b"", metadata=metadata, timeout=10)
    own, left, peer = eval(answer.decode())
    assert own == [("key", "value"), ("raw-bin", "AQID/w"), ("key", "again")]
    assert left == 0, "a call keeps none once its handler is made"
    assert peer == "127.0.0.1"


def test_answers_that_come_later(channel: grpc.Channel, running: Running) -> None:
    call = channel.unary_unary("/test.S/Wait").future(b"x", timeout=10)
    assert running.service.arrived.wait(10)

    def answer() -> None:
        running.service.calls[0].send(b"late")
        running.service.calls[0].finish()

    running.loop.call_soon_threadsafe(answer)
    assert call.result(10) == b"late"


def test_a_compressing_client(running: Running) -> None:
    """Our server refuses compression and names what it accepts; grpcio accepts gzip."""
    address = f"127.0.0.1:{running.port}"
    with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
        echo = channel.unary_unary("/test.S/Echo")
        if isinstance(running.server, WireServer):
            assert failing(lambda: echo(bytes(10_000), timeout=10))[0] is grpc.StatusCode.UNIMPLEMENTED
        else:
            assert echo(bytes(10_000), timeout=10) == bytes(10_000)


def test_drain_lets_open_calls_end_and_takes_no_new_ones(channel: grpc.Channel, running: Running) -> None:
    call = channel.unary_unary("/test.S/Wait").future(b"x", timeout=10)
    assert running.service.arrived.wait(10)
    draining = asyncio.run_coroutine_threadsafe(running.server.drain(10), running.loop)
    running.call(turn())  # the drain has begun
    running.loop.call_soon_threadsafe(running.service.calls[0].finish, Status.CANCELLED, "drained")
    assert failing(call.result) == (grpc.StatusCode.CANCELLED, "drained")
    draining.result(15)
    assert running.service.seen == ["waiting"]


def test_stop_cancels_open_calls(channel: grpc.Channel, running: Running) -> None:
    call = channel.unary_unary("/test.S/Wait").future(b"x", timeout=10)
    assert running.service.arrived.wait(10)
    running.call(running.server.stop())
    assert failing(call.result)[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert running.service.ended.wait(10)
    assert running.service.seen == ["waiting", "cancelled"]


@pytest.mark.parametrize("kind", sorted(TRANSPORTS))
def test_many_calls_at_once_from_the_asynchronous_client(kind: str) -> None:
    async def one(channel: aio.Channel, number: int) -> int:
        call = channel.stream_stream("/test.S/Echo")(timeout=20)
        for _ in range(3):
            await call.write(str(number).encode() * 100)
            assert await call.read() == str(number).encode() * 100
        await call.done_writing()
        assert await call.read() is aio.EOF
        return number

    async def main() -> None:
        server: Any = TRANSPORTS[kind](Service().methods())
        port = await server.start("127.0.0.1", 0)
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await asyncio.gather(*(one(channel, n) for n in range(100))) == list(range(100))
        await server.drain(2)
        statistics = server.statistics()
        assert (statistics.streams, statistics.streams_total) == (0, 100)
        assert statistics.messages_received == statistics.messages_sent == 300

    uvloop.run(main())
