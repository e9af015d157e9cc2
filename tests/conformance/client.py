"""A blocking HTTP/2 client that sends the bytes of a test unchanged.

It never waits for time to pass. The effect of a stimulus is known once a PING sent after it comes back, or the
connection ends; if neither happens within the limit, the test fails.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Self

import hpack

from tests.conformance.frames import (
    DEFAULT_WINDOW_BYTES,
    HEAD_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    Flag,
    Frame,
    Kind,
    Setting,
    data,
    ping,
    raw,
    settings,
    settings_ack,
    window_update,
)
from tests.conformance.received import Received, Reply

LIMIT_S = 2.0
ROUND_TRIPS = 2  # a server may let its PING answer overtake other frames of the same write, but not those of the last
Address = tuple[str, int]


class SilentServerError(AssertionError):
    """The server did not answer, and did not close, within the limit."""


class Client:
    """One connection. What is sent is held back until something is read, so that it leaves in few segments.

    Invariant: everything read has passed ``Received.take``. Owned by one test; use it in a ``with`` block.
    """

    def __init__(self, address: Address, *, limit_s: float = LIMIT_S) -> None:
        self._deadline = time.monotonic() + limit_s
        self._socket = socket.create_connection(address, timeout=limit_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox = bytearray()
        self._inbox = bytearray()
        self._pings = 0
        self.closed = False
        self.generous = False  # whether each DATA frame read is answered with new credit
        self.received = Received()
        self.encoder = hpack.Encoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *chunks: bytes) -> None:
        """Queue bytes; they leave before the next read."""
        for chunk in chunks:
            self._outbox += chunk

    def flush(self, pieces_bytes: int = 0) -> None:
        """Send what is queued, ``pieces_bytes`` at a time where given."""
        out, self._outbox = bytes(self._outbox), bytearray()
        step = pieces_bytes or max(1, len(out))
        try:
            for at in range(0, len(out), step):
                self._socket.sendall(out[at : at + step])
        except (BrokenPipeError, ConnectionResetError):
            return  # the server has closed; what it said before that is still to be read
        except TimeoutError:
            raise SilentServerError("the server reads nothing") from None

    def handshake(self, *values: tuple[int, int]) -> None:
        """Exchange prefaces with these settings and acknowledgements."""
        self.send(PREFACE)
        self.configure(*values)
        self.until_settings()

    def until_settings(self) -> None:
        """Read until the server's preface has been read and acknowledged."""
        while not self.received.frames:
            if not self.receive():
                raise SilentServerError("the server closed the connection in the handshake")
        self.flush()

    def configure(self, *values: tuple[int, int]) -> None:
        """Send SETTINGS and wait for the acknowledgement. A larger value counts from now, a smaller from then."""
        before = self._acknowledgements()
        self.send(settings(*values))
        latest = dict(values)
        window = latest.get(Setting.INITIAL_WINDOW_SIZE, self.received.initial_grant_bytes)
        table = latest.get(Setting.HEADER_TABLE_SIZE, self.received.decoder.max_allowed_table_size)
        self.received.regrant(max(window, self.received.initial_grant_bytes))
        self.received.decoder.max_allowed_table_size = max(table, self.received.decoder.max_allowed_table_size)
        while self._acknowledgements() == before and self.receive():
            pass
        self.received.regrant(window)
        self.received.decoder.max_allowed_table_size = table
        self.received.max_frame_bytes = latest.get(Setting.MAX_FRAME_SIZE, self.received.max_frame_bytes)

    def _acknowledgements(self) -> int:
        return sum(frame.kind == Kind.SETTINGS and bool(frame.flags & Flag.ACK) for frame in self.received.frames)

    def grant(self, stream: int, size_bytes: int) -> None:
        """Send a WINDOW_UPDATE frame."""
        self.received.grant(stream, size_bytes)
        self.send(window_update(stream, size_bytes))

    def grant_everything(self) -> None:
        """Lift the connection's window to its maximum."""
        self.grant(0, MAX_WINDOW_BYTES - DEFAULT_WINDOW_BYTES)

    def upload(self, stream: int, content: bytes, *, frame_bytes: int = 16_000, end: bool = True,
               padding: int | None = None) -> None:  # fmt: skip
        """Send ``content`` in DATA frames, waiting for credit where there is none."""
        for at in range(0, len(content), frame_bytes):
            piece = content[at : at + frame_bytes]
            cost = len(piece) + (0 if padding is None else padding + 1)
            while self.received.credit_of(stream) < cost:
                if not self.receive():
                    raise SilentServerError("the server closed the connection during an upload")
            self.received.spend(stream, cost)
            self.send(data(stream, piece, end=end and at + frame_bytes >= len(content), padding=padding))

    def receive(self) -> Frame | None:
        """The next frame, counted; None once the server has closed. Raises: SilentServerError at the limit."""
        self.flush()
        frame = self._next()
        if frame is None:
            return None
        self.received.take(frame)
        if frame.kind == Kind.SETTINGS and not frame.flags & Flag.ACK:
            self.send(settings_ack())
        if frame.kind == Kind.PING and not frame.flags & Flag.ACK:
            self.send(raw(Kind.PING, Flag.ACK, payload=frame.payload))
        if frame.kind == Kind.DATA and self.generous and frame.payload:
            self.grant(0, len(frame.payload))
            self.grant(frame.stream, len(frame.payload))
        return frame

    def _next(self) -> Frame | None:
        while True:
            size = HEAD_BYTES + int.from_bytes(self._inbox[:3])
            if len(self._inbox) >= size:
                frame, self._inbox = bytes(self._inbox[:size]), self._inbox[size:]
                stream = int.from_bytes(frame[5:9]) & MAX_WINDOW_BYTES
                return Frame(frame[3], frame[4], stream, frame[HEAD_BYTES:])
            if not self._fill():
                return None

    def _fill(self) -> bool:
        try:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            chunk = self._socket.recv(1 << 16)
        except ConnectionResetError:
            chunk = b""
        except TimeoutError:
            raise SilentServerError(f"neither an answer nor a close; received {self.received.frames[-8:]}") from None
        self._inbox += chunk
        self.closed = not chunk
        return bool(chunk)

    def settle(self) -> None:
        """Return once the server has dealt with all that was sent, or has closed."""
        for _ in range(ROUND_TRIPS):
            self._pings += 1
            opaque = b"settle%02d" % self._pings
            self.send(ping(opaque))
            while (frame := self.receive()) and not (frame.kind == Kind.PING and frame.payload == opaque):
                pass

    def until_closed(self) -> None:
        """Return once the server has closed."""
        while not self.closed:
            self.receive()

    def reply(self, stream: int) -> Reply:
        """The whole reply on ``stream``; as far as it came where the connection ended."""
        while not self.received.reply(stream).over and self.receive():
            pass
        return self.received.reply(stream)

    def replies(self, streams: Sequence[int]) -> list[Reply]:
        """The whole replies on ``streams``."""
        return [self.reply(stream) for stream in streams]
