"""A client that sends any frames a test needs and returns the answers parsed, by codecs that are not ours."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hpack import Decoder, Encoder
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame

from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.limits import Limits
from epp.wire.http2.streams import Places
from epp.wire.service import Call, Methods, Status
from epp.wire.session import Session

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32
ECHO = "/test.Echo/Both"
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", ECHO),
    (":authority", "tierwise"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
Pairs = Sequence[tuple[str, str]]


def raw(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


def message(body: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(body)) + body


def settings(*pairs: tuple[int, int]) -> bytes:
    return raw(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream_id: int, increment: int) -> bytes:
    return raw(WINDOW_UPDATE, 0, stream_id, struct.pack(">I", increment))


def rst(stream_id: int, code: int = ErrorCode.CANCEL) -> bytes:
    return raw(RST_STREAM, 0, stream_id, struct.pack(">I", code))


class Echo:
    """Sends every message back, and records the calls that it gets."""

    def __init__(self, call: Call, seen: list[str]) -> None:
        self.call, self.seen = call, seen

    def received(self, message: bytes) -> None:
        self.seen.append(f"{len(message)} bytes")
        self.call.send(message)

    def half_closed(self) -> None:
        self.seen.append("half-closed")
        self.call.finish()

    def cancelled(self) -> None:
        self.seen.append("cancelled")


class Quiet(Echo):
    """Sends no answer until the test makes it."""

    def received(self, message: bytes) -> None:
        self.seen.append(f"{len(message)} bytes")

    def half_closed(self) -> None:
        self.seen.append("half-closed")


class Peer:
    """One client connection to one Session, without sockets or clocks."""

    def __init__(
        self,
        methods: Methods | None = None,
        limits: Limits | None = None,
        *,
        greet: bool = True,
        counters: Counters | None = None,
        places: Places | None = None,
    ) -> None:
        self.seen: list[str] = []
        self.calls: list[Call] = []
        self.metadata: list[Pairs] = []
        self.now = 100.0
        self.counters = counters or Counters()
        self.encoder, self.decoder = Encoder(), Decoder()
        methods = methods or {ECHO: self.echo, "/test.Echo/Quiet": self.quiet}
        self.session = Session(methods, limits or Limits(), self.counters, "192.0.2.1:5", lambda: None, places)
        self.greeting = self.drain()
        if greet:
            self.send(PREFACE + settings())
            self.send(raw(SETTINGS, ACK, 0))

    def echo(self, call: Call) -> Echo:
        self.calls.append(call)
        self.metadata.append(call.metadata)
        return Echo(call, self.seen)

    def quiet(self, call: Call) -> Quiet:
        self.calls.append(call)
        self.metadata.append(call.metadata)
        return Quiet(call, self.seen)

    def drain(self) -> list[Frame]:
        """Return all frames that the server has to send now."""
        out = b""
        self.session.drop_overflowed()
        while piece := self.session.output(self.now):
            out += piece
        return parse(out)

    def send(self, *data: bytes) -> list[Frame]:
        """Feed bytes, and return the frames of the answer."""
        for piece in data:
            self.session.receive(piece, self.now)
        return self.drain()

    def block(self, pairs: Pairs) -> bytes:
        return self.encoder.encode(pairs)

    def plain_block(self, pairs: Pairs) -> bytes:
        """Return a block that can be repeated: it neither uses nor changes the dynamic table."""
        return Encoder().encode([(k, v, True) for k, v in pairs])

    def head(self, stream_id: int, pairs: Pairs = REQUEST, *, end: bool = False) -> bytes:
        return raw(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream_id, self.block(pairs))

    def open(self, stream_id: int = 1, path: str = ECHO, *extra: tuple[str, str], end: bool = False) -> list[Frame]:
        pairs = [(k, path if k == ":path" else v) for k, v in REQUEST]
        return self.send(self.head(stream_id, [*pairs, *extra], end=end))

    def fields(self, frame: Frame) -> dict[str, str]:
        assert isinstance(frame, HeadersFrame)
        return {str(k): str(v) for k, v in self.decoder.decode(frame.data)}

    def finish(self, status: Status = Status.OK, text: str = "", *, call: int = -1) -> list[Frame]:
        self.calls[call].finish(status, text)
        return self.drain()

    @property
    def open_streams(self) -> int:
        return len(self.session.connection.streams)

    @property
    def alive(self) -> bool:
        """Whether the connection still answers a PING."""
        return any(f.type == PING for f in self.send(raw(PING, 0, 0, b"still on")))


def parse(data: bytes) -> list[Frame]:
    """Return the frames in ``data`` as hyperframe parses them, with the debug data of a GOAWAY."""
    frames = []
    view = memoryview(data)
    while view:
        frame, length = Frame.parse_frame_header(view[:9])
        frame.parse_body(view[9 : 9 + length])
        frames.append(frame)
        view = view[9 + length :]
    return frames


def goaway(frames: Sequence[Frame]) -> ErrorCode | None:
    """Return the code of the GOAWAY, which must be the last frame; None without one."""
    if frames and isinstance(frames[-1], GoAwayFrame):
        return ErrorCode(frames[-1].error_code)
    assert not any(isinstance(f, GoAwayFrame) for f in frames)
    return None


def resets(frames: Sequence[Frame]) -> dict[int, ErrorCode]:
    """Return the codes of the RST_STREAM frames, by stream."""
    return {f.stream_id: ErrorCode(f.error_code) for f in frames if isinstance(f, RstStreamFrame)}


def body(frames: Sequence[Frame], stream_id: int = 1) -> bytes:
    return b"".join(f.data for f in frames if isinstance(f, DataFrame) and f.stream_id == stream_id)


def is_ack(frame: Frame) -> bool:
    return isinstance(frame, SettingsFrame) and "ACK" in frame.flags
