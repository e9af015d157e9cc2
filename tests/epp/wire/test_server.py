"""The server with real sockets: TLS, timers, turns, and the ends of connections as clients see them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import socket as sockets
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc import aio
from hyperframe.frame import Frame, GoAwayFrame

from epp.ports import door
from epp.wire.aio import GrpcioServer
from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from epp.wire.server import WireServer
from epp.wire.service import Call
from epp.wire.turns import Clocks
from tests.epp.wire.peer import (
    ACK,
    DATA,
    ECHO,
    PING,
    PREFACE,
    REQUEST,
    SETTINGS,
    Echo,
    Peer,
    Quiet,
    body,
    message,
    parse,
    raw,
    rst,
    settings,
    window_update,
)

Test = Callable[["Socket"], Awaitable[None]]


class Socket:
    """A bare client connection to a running server."""

    def __init__(self, server: WireServer, port: int, seen: list[str]) -> None:
        self.server, self.port, self.seen = server, port, seen
        self.codec = Peer(greet=False)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self, host: str = "127.0.0.1", *, greet: bool = True) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        if greet:
            self.writer.write(PREFACE + settings() + raw(SETTINGS, ACK, 0))

    async def rest(self) -> list[Frame]:
        """Return all frames until the server closes."""
        return parse(await asyncio.wait_for(self.reader.read(), 20))

    async def until(self, kind: int) -> list[Frame]:
        """Return all frames up to the first one of a type."""
        frames: list[Frame] = []
        while not frames or frames[-1].type != kind or (kind == SETTINGS and "ACK" not in frames[-1].flags):
            head = await asyncio.wait_for(self.reader.readexactly(9), 20)
            frames += parse(head + await self.reader.readexactly(int.from_bytes(head[:3], "big")))
        return frames


def run(test: Test, limits: Limits | None = None) -> None:
    async def main() -> None:
        seen: list[str] = []
        methods = {ECHO: lambda call: Echo(call, seen), "/test.Echo/Quiet": lambda call: Quiet(call, seen)}
        server = WireServer(methods, limits=limits)
        socket = Socket(server, await server.start("127.0.0.1", 0), seen)
        try:
            await asyncio.wait_for(test(socket), 30)
        finally:
            if hasattr(socket, "writer"):
                socket.writer.close()
            await server.stop()
        assert server.statistics().connections == 0

    uvloop.run(main())


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_client_that_has_just_left_does_not_keep_the_server_from_stopping(
    runner: Callable[[Awaitable[None]], None],
) -> None:
    async def main() -> None:
        server = WireServer({})
        port = await server.start("127.0.0.1", 0)
        with sockets.create_connection(("127.0.0.1", port)) as client:
            client.sendall(PREFACE + settings() + raw(SETTINGS, ACK, 0))
            client.setblocking(False)
            greeting = b""
            while len(greeting) < 18 or greeting[-9:] != raw(SETTINGS, ACK, 0):  # all that the server sends at first
                greeting += await asyncio.get_running_loop().sock_recv(client, 65536)
        # The client has left, the loop has not noticed, and the GOAWAY makes the kernel reset the connection.
        await server.stop()
        assert server.statistics().connections == 0

    runner(main())


def test_a_fault_reaches_the_client_as_goaway_even_with_its_bytes_unread() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        socket.writer.write(raw(DATA, 0, 1, b"idle") + b"\0" * 3_000_000)
        frames = await socket.rest()
        assert isinstance(frames[-1], GoAwayFrame)
        assert frames[-1].error_code == ErrorCode.PROTOCOL_ERROR
        assert socket.server.statistics().connection_faults == 1

    run(test)


def test_a_flooding_connection_ends_and_the_others_go_on() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        async with aio.insecure_channel(f"127.0.0.1:{socket.port}") as channel:
            echo = channel.unary_unary(ECHO)
            assert await echo(b"before", timeout=10) == b"before"
            socket.writer.write(raw(PING, 0, 0, bytes(8)) * 50_000)
            frames = await socket.rest()
            assert frames[-1].error_code == ErrorCode.ENHANCE_YOUR_CALM
            assert await echo(b"after", timeout=10) == b"after"
        assert socket.server.statistics().floods == {Flood.PINGS: 1}

    run(test)


def test_a_client_that_reads_nothing_costs_bounded_memory_and_then_its_connection() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        (link,) = socket.server.links
        socket.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            await _write_for_ever(socket.writer, raw(PING, 0, 0, bytes(8)) * 10_000)
        await asyncio.wait_for(link.lost, 20)
        assert socket.server.statistics().floods == {Flood.UNREAD: 1}

    every_ping = {**Limits().floods, Flood.PINGS: Limits().floods[Flood.PINGS]._replace(burst=1e9)}
    run(test, Limits(floods=every_ping, max_unread_bytes=100_000))


async def _write_for_ever(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()


def test_an_answer_waits_in_the_streams_while_the_socket_is_full_and_arrives_whole() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        big = bytes(range(256)) * 8_000
        wide = settings((4, 2**31 - 1)) + window_update(0, 2**30)
        socket.writer.write(wide + socket.codec.head(1))
        data = message(big)
        for start in range(0, len(data), 16_384):
            socket.writer.write(raw(DATA, 1 if start + 16_384 >= len(data) else 0, 1, data[start : start + 16_384]))
        frames: list[Frame] = []
        while not frames or frames[-1].stream_id != 1 or "END_STREAM" not in frames[-1].flags:
            head = await socket.reader.readexactly(9)
            frames += parse(head + await socket.reader.readexactly(int.from_bytes(head[:3], "big")))
        assert body(frames) == data

    run(test)


def test_a_silent_connection_is_closed_after_the_handshake_time() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect(greet=False)
        await socket.reader.readexactly(9)
        (link,) = socket.server.links
        await asyncio.wait_for(link.lost, 10)

    run(test, Limits(handshake_s=0.05))


def test_an_idle_connection_that_has_greeted_stays() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        (link,) = socket.server.links
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(0.1, later.set_result, None)
        assert await asyncio.wait({later, link.lost}, return_when=asyncio.FIRST_COMPLETED) == ({later}, {link.lost})
        socket.writer.write(raw(PING, 0, 0, bytes(8)))
        assert (await socket.until(PING))[-1].opaque_data == bytes(8)

    run(test, Limits(handshake_s=0.05))


def test_a_deadline_fires_without_any_bytes_arriving() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        pairs = [(k, "/test.Echo/Quiet" if k == ":path" else v) for k, v in REQUEST]
        socket.writer.write(socket.codec.head(1, [*pairs, ("grpc-timeout", "50m")]))
        frames = await socket.until(1)
        assert socket.codec.fields(frames[-1])["grpc-status"] == "4"
        assert socket.seen == ["cancelled"]

    run(test)


def test_drain_says_goaway_twice_serves_what_was_under_way_and_closes() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        socket.writer.write(socket.codec.head(1))
        await socket.until(SETTINGS)
        draining = asyncio.create_task(socket.server.drain(20))
        first = (await socket.until(7))[-1]
        assert first.last_stream_id == 2**31 - 1
        ping = (await socket.until(PING))[-1]
        socket.writer.write(socket.codec.head(3) + raw(PING, ACK, 0, ping.opaque_data))
        assert (await socket.until(7))[-1].last_stream_id == 3
        socket.writer.write(
            socket.codec.head(5) + raw(DATA, 1, 3, message(b"three")) + raw(DATA, 1, 1, message(b"one"))
        )
        frames = await socket.rest()
        assert (body(frames, 3), body(frames, 1), body(frames, 5)) == (message(b"three"), message(b"one"), b"")
        await draining

    run(test)


def test_a_drain_of_an_idle_connection_ends_at_once() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        draining = asyncio.create_task(socket.server.drain(20))
        ping = (await socket.until(PING))[-1]
        socket.writer.write(raw(PING, ACK, 0, ping.opaque_data))
        await socket.rest()
        await asyncio.wait_for(draining, 5)

    run(test)


def test_a_drain_gives_up_after_its_time_and_cancels() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        socket.writer.write(socket.codec.head(1))
        await socket.until(SETTINGS)
        await asyncio.wait_for(socket.server.drain(0.05), 5)
        assert socket.seen == ["cancelled"]
        assert (await socket.rest())[-1].error_code == ErrorCode.NO_ERROR

    run(test, Limits(linger_s=0.1))


def test_a_port_in_use_is_an_error_on_both_transports() -> None:
    async def main() -> None:
        first = WireServer({})
        port = await first.start("127.0.0.1", 0)
        for server in (WireServer({}), GrpcioServer({})):
            with pytest.raises(OSError, match=r"."):
                await server.start("127.0.0.1", port)
        await first.stop()

    uvloop.run(main())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the chain and key of a self-signed certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    chain = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "chain.pem").write_bytes(chain.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "chain.pem", folder / "key.pem"


@pytest.mark.parametrize("kind", ["wire", "grpcio"])
def test_tls_serves_grpc_clients(kind: str, certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        methods = {ECHO: lambda call: Echo(call, [])}
        server: WireServer | GrpcioServer
        if kind == "wire":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server = WireServer(methods, tls=context)
        else:
            chain, key = [path.read_bytes() for path in certificate]
            server = GrpcioServer(methods, tls=lambda: (chain, key))
        port = await server.start("127.0.0.1", 0)
        credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
        async with aio.secure_channel(f"localhost:{port}", credentials) as channel:
            big = bytes(1_000_000)
            assert await channel.unary_unary(ECHO)(big, timeout=10) == big
        await server.drain(2)

    uvloop.run(main())


@pytest.mark.parametrize("protocols", [["http/1.1"], []])
def test_tls_without_alpn_h2_is_refused(protocols: list[str], certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server = WireServer({}, tls=context)
        port = await server.start("127.0.0.1", 0)
        client = ssl.create_default_context(cafile=str(certificate[0]))
        if protocols:
            client.set_alpn_protocols(protocols)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        frames = parse(await asyncio.wait_for(reader.read(), 10))
        assert frames[-1].error_code == ErrorCode.INADEQUATE_SECURITY
        writer.close()
        await server.stop()

    uvloop.run(main())


def connected(port: int, host: str = "127.0.0.1") -> sockets.socket:
    client = sockets.create_connection(("127.0.0.1", port), source_address=(host, 0))
    client.setblocking(False)
    return client


async def read_all(client: sockets.socket) -> list[Frame]:
    """Return the frames that the server sends until it closes."""
    data = b""
    while piece := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65_536), 20):
        data += piece
    return parse(data)


def test_one_connection_too_many_takes_the_place_of_one_without_streams() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        (first,) = socket.server.links
        newer = connected(socket.port)
        assert (await socket.rest())[-1].error_code == ErrorCode.NO_ERROR
        await asyncio.wait_for(first.lost, 20)
        newer.close()
        statistics = socket.server.statistics()
        assert (statistics.displaced_connections, statistics.refused_connections) == (1, 0)

    run(test, Limits(max_connections=1))


def test_one_connection_too_many_is_refused_while_all_are_in_use(caplog: pytest.LogCaptureFixture) -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        socket.writer.write(socket.codec.head(1) + raw(DATA, 0, 1, message(b"in use")))
        await socket.until(DATA)
        for _ in range(3):
            with connected(socket.port) as newer:
                frames = await read_all(newer)
                assert isinstance(frames[-1], GoAwayFrame)
                assert frames[-1].error_code == ErrorCode.ENHANCE_YOUR_CALM
        socket.writer.write(raw(DATA, 1, 1, message(b"goes on")))
        assert body(await socket.until(DATA)) == message(b"goes on")
        assert socket.server.statistics().refused_connections == 3

    run(test, Limits(max_connections=1))
    assert caplog.text.count("refused: 1 connections are open, which are the most, and no address has more") == 1


def test_no_address_takes_the_places_of_others() -> None:
    """A proxy without requests keeps its connection, and one that was away may connect again."""

    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        (idle,) = socket.server.links
        greedy = [Socket(socket.server, socket.port, socket.seen) for _ in range(3)]
        for other in greedy:
            await other.connect("127.0.0.2")
            other.writer.write(other.codec.head(1) + raw(DATA, 0, 1, message(b"in use")))
            await other.until(DATA)
        late = Socket(socket.server, socket.port, socket.seen)
        await late.connect("127.0.0.2")
        assert (await late.rest())[-1].error_code == ErrorCode.ENHANCE_YOUR_CALM
        assert not idle.lost.done()
        newcomer = Socket(socket.server, socket.port, socket.seen)
        await newcomer.connect("127.0.0.3")
        await newcomer.until(SETTINGS)
        assert not idle.lost.done()
        statistics = socket.server.statistics()
        assert (statistics.displaced_connections, statistics.refused_connections) == (1, 1)
        for other in (*greedy, late, newcomer):
            other.writer.close()

    run(test, Limits(max_connections=4))


def test_a_connection_that_is_being_closed_counts_no_more_for_its_address() -> None:
    """Its end may take a round trip, in which a burst of newcomers must not displace its address's other ones."""

    async def test(socket: Socket) -> None:
        await socket.connect()
        await socket.until(SETTINGS)
        (link,) = socket.server.links
        assert socket.server.origins.most_connections() == 1
        link.stop()
        assert not link.lost.done()
        assert socket.server.origins.most_connections() == 0
        await link.lost
        again = Socket(socket.server, socket.port, socket.seen)
        await again.connect()
        await again.until(SETTINGS)
        assert socket.server.origins.most_connections() == 1
        again.writer.close()

    run(test)


def test_a_connection_that_ends_by_a_flood_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(socket: Socket) -> None:
        for _ in range(2):
            await socket.connect()
            socket.writer.write(raw(PING, 0, 0, bytes(8)) * 5_000)
            await socket.rest()
            socket.writer.close()
        assert socket.server.statistics().floods == {Flood.PINGS: 2}

    run(test)
    assert caplog.text.count("ended: too many pings: 2000 at once") == 1
    assert "connection of 127.0.0.1:" in caplog.text


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_neighbour_is_served_in_the_middle_of_one_clients_bytes(
    runner: Callable[[Awaitable[None]], None],
) -> None:
    """Each look at the clock takes the time of a turn, so a turn has one or two events."""

    async def main() -> None:
        order: list[str] = []
        served = asyncio.get_running_loop().create_future()

        class Named(Quiet):
            def received(self, message: bytes) -> None:
                order.append(message.decode())
                if len(order) == 3_001:
                    served.set_result(None)

        ticks = iter(range(1_000_000))
        server = WireServer(
            {ECHO: lambda call: Named(call, [])}, clocks=Clocks(lambda: float(next(ticks)), lambda: float(next(ticks)))
        )
        port = await server.start("127.0.0.1", 0)
        greedy, neighbour = connected(port), connected(port)
        loop = asyncio.get_running_loop()
        hello = PREFACE + settings() + raw(SETTINGS, ACK, 0) + Peer(greet=False).head(1)
        await loop.sock_sendall(greedy, hello + raw(DATA, 0, 1, message(b"greedy")) * 3_000)
        await loop.sock_sendall(neighbour, hello + raw(DATA, 0, 1, message(b"neighbour")))
        await served
        assert order.index("neighbour") < 1_500
        assert server.statistics().turns_cut > 1_000
        greedy.close()
        neighbour.close()
        await server.stop()

    runner(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_fifty_connections_of_one_address_delay_a_neighbour_no_longer_than_a_few(
    runner: Callable[[Awaitable[None]], None],
) -> None:
    """Each of their messages takes a millisecond by the server's clock, and a turn has five."""

    async def main() -> None:
        now, handled = 0.0, 0

        class Costly(Quiet):
            def received(self, message: bytes) -> None:
                nonlocal now, handled
                now += 0.001
                handled += 1

        methods = {ECHO: lambda call: Echo(call, []), "/test.Echo/Costly": lambda call: Costly(call, [])}
        server = WireServer(methods, clocks=Clocks(lambda: now, lambda: now))
        port = await server.start("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        hello = PREFACE + settings() + raw(SETTINGS, ACK, 0)
        costly = [(k, "/test.Echo/Costly" if k == ":path" else v) for k, v in REQUEST]
        flood = hello + Peer(greet=False).head(1, costly) + raw(DATA, 0, 1, message(b"costly")) * 2_000
        greedy = [connected(port, "127.0.0.2") for _ in range(50)]
        for client in greedy:
            await loop.sock_sendall(client, flood)
        neighbour = Socket(server, port, [])
        await neighbour.connect()
        neighbour.writer.write(neighbour.codec.head(1))
        delays = []
        for _ in range(20):
            before = handled
            neighbour.writer.write(raw(DATA, 0, 1, message(b"hello")))
            await neighbour.until(DATA)
            delays.append(handled - before)
        assert handled < 50 * 2_000, "they were still at it"
        assert sorted(delays)[10] <= 50, "messages, one from each of them; a turn each would be 250 at least"
        for client in greedy:
            client.close()
        neighbour.writer.close()
        await server.stop()

    runner(asyncio.wait_for(main(), 60))


def test_a_connection_whose_headers_take_more_than_their_share_waits_and_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        for stream_id in range(1, 21, 2):
            socket.writer.write(socket.codec.head(stream_id, [*REQUEST, ("x-number", str(stream_id))]))
        socket.writer.write(raw(DATA, 0, 19, message(b"first")))
        assert body(await socket.until(DATA), 19) == message(b"first")
        assert socket.server.statistics().header_waits > 0
        socket.writer.write(raw(DATA, 0, 19, message(b"later")))
        assert body(await socket.until(DATA), 19) == message(b"later")

    run(test, Limits(header_share=1e-4))
    assert "waits: decoding its headers takes 0% of a core" in caplog.text


def test_a_client_that_connects_anew_has_no_new_share_of_a_core() -> None:
    async def test(socket: Socket) -> None:
        await socket.connect()
        for stream_id in range(1, 161, 2):
            socket.writer.write(socket.codec.head(stream_id, [*REQUEST, ("x-number", str(stream_id))]))
        socket.writer.write(raw(DATA, 0, 159, message(b"first")))
        await socket.until(DATA)
        (link,) = socket.server.links
        socket.writer.close()
        await link.lost
        waits = socket.server.statistics().header_waits
        again = Socket(socket.server, socket.port, socket.seen)
        await again.connect()
        again.writer.write(again.codec.head(1) + raw(DATA, 0, 1, message(b"again")))
        assert body(await again.until(DATA)) == message(b"again")
        assert socket.server.statistics().header_waits > waits
        again.writer.close()

    run(test, Limits(header_share=1e-3))


class Whim:
    """Answers, finishes, fails or keeps silent at random."""

    def __init__(self, call: Call, rng: random.Random) -> None:
        self.call, self.rng, self.ended = call, rng, 0
        if rng.random() < 0.02:
            raise RuntimeError("a handler that cannot be made")

    def received(self, message: bytes) -> None:
        whim = self.rng.random()
        if whim < 0.4:
            self.call.send(message * self.rng.choice((1, 1, 50)))
        elif whim < 0.6:
            self.call.finish()
        elif whim < 0.62:
            raise RuntimeError("a handler that fails")

    def half_closed(self) -> None:
        if self.rng.random() < 0.7:
            self.call.finish()

    def cancelled(self) -> None:
        self.ended += 1
        assert self.ended == 1


async def misbehave(socket: Socket, rng: random.Random, host: str) -> None:
    """Send random frames, then close, reset, or leave in the middle of a frame."""
    with contextlib.suppress(OSError):
        await socket.connect(host, greet=rng.random() < 0.95)
        socket.writer.write(socket.codec.head(1))
        last = 1  # the newest stream
        for _ in range(rng.randrange(80)):
            stream_id = max(1, last - 2 * rng.randrange(rng.choice((2, 2, 12))))
            match rng.randrange(9):
                case 0 | 1 | 2:
                    extra = [("x", str(rng.random()) * rng.choice((1, 20)))]
                    if rng.random() < 0.3:
                        extra.append(("grpc-timeout", "5m"))
                    last += 2
                    socket.writer.write(socket.codec.head(last, [*REQUEST, *extra], end=rng.random() < 0.1))
                case 3 | 4:
                    whole = message(bytes(rng.choice((0, 10, 5000))))
                    piece = whole[: rng.choice((len(whole), 3))]
                    socket.writer.write(raw(DATA, rng.random() < 0.2, stream_id, piece))
                case 5:
                    socket.writer.write(rst(stream_id))
                case 6:
                    socket.writer.write(settings((4, rng.choice((0, 10, 100_000)))))
                case 7:
                    socket.writer.write(window_update(rng.choice((0, stream_id)), 1000))
                case _:
                    await asyncio.sleep(0)
        if rng.random() < 0.3:
            socket.writer.write(b"\0\0\7")
        if rng.random() < 0.5:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(socket.reader.read(1 << 16), rng.random() / 50)
    if not hasattr(socket, "writer"):
        return
    socket.writer.transport.abort() if rng.random() < 0.5 else socket.writer.close()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("seed", range(3))
def test_all_accounts_are_zero_when_everybody_has_left(runner: Callable[[Awaitable[None]], None], seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        limits = Limits(max_streams=24, max_connections=12, max_buffered_bytes=1 << 20, header_share=0.02)
        server = WireServer({ECHO: lambda call: Whim(call, rng)}, limits=limits)
        port = await server.start("127.0.0.1", 0)
        try:
            for _ in range(8):
                hosts = [f"127.0.0.{rng.randrange(2, 5)}" for _ in range(16)]
                await asyncio.gather(*(misbehave(Socket(server, port, []), rng, host) for host in hosts))
            # The server accepts in order: once it has answered the last client, all others are among its links.
            last = Socket(server, port, [])
            await last.connect("127.0.0.9")
            await asyncio.wait_for(last.reader.read(1), 20)
            last.writer.close()
            origins = {link.origin for link in server.links}
            links = list(server.links)
            if links:
                await asyncio.wait([link.lost for link in links], timeout=20)
            counts = server.statistics()
            assert (counts.connections, counts.streams, counts.buffered_bytes) == (0, 0, 0)
            assert {(origin.connections, origin.places.taken) for origin in origins} <= {(0, 0)}
            assert counts.streams_total > 100
            assert not server.links
            assert not server.idle
            assert all(link.lost.done() for link in links)
            assert not server.queue._waiting
        finally:
            await server.stop()

    runner(main())


@pytest.mark.skipif(not hasattr(sockets, "TCP_USER_TIMEOUT"), reason="Linux only")
@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_peer_that_vanishes_is_noticed_in_90_seconds(runner: Callable[[Awaitable[None]], None]) -> None:
    async def main() -> None:
        server = WireServer({})
        port = await server.start("127.0.0.1", 0)
        with connected(port) as client:
            assert await asyncio.get_running_loop().sock_recv(client, 9)
            (link,) = server.links
            accepted = link._transport.get_extra_info("socket")
            options = [sockets.TCP_KEEPIDLE, sockets.TCP_KEEPINTVL, sockets.TCP_KEEPCNT, sockets.TCP_USER_TIMEOUT]
            assert accepted.getsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE) == 1
            assert [accepted.getsockopt(sockets.IPPROTO_TCP, o) for o in options] == [60, 10, 3, 90_000]
        await server.stop()

    runner(main())


def test_tls_handshakes_under_way_have_a_bound(certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        reports: list[door.Failed] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server = WireServer({}, limits=Limits(max_handshakes=2), tls=context, report=reports.append)
        port = await server.start("127.0.0.1", 0)
        clients = [connected(port) for _ in range(3)]
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(clients[2], 1), 20) == b""
        assert [report.failure for report in reports] == [door.Failure.HANDSHAKES]
        for client in clients:
            client.close()
        await server.stop()

    uvloop.run(main())
