"""What a server sent on one connection, checked frame by frame: it must be good even to a bad client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import hpack

from tests.conformance.frames import (
    DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    Code,
    Field,
    Flag,
    Frame,
    Kind,
    Setting,
)

CONNECTION_SPECIFIC = {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}


class ServerBrokeError(AssertionError):
    """The server sent what RFC 9113 forbids a server to send, whatever the case was about."""


def require(fact: bool, law: str) -> None:
    """Raises: ServerBrokeError with the ``law`` where ``fact`` is false."""
    if not fact:
        raise ServerBrokeError(law)


@dataclass(slots=True)
class Reply:
    """The server's half of one stream."""

    sections: list[list[Field]] = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def over(self) -> bool:
        """Whether the server has sent its last frame."""
        return self.ended or self.reset is not None

    def first(self, name: bytes) -> bytes | None:
        """The value of the first field called ``name``, in the header section before the trailers."""
        return next((value for section in self.sections for key, value in section if key == name), None)

    @property
    def http_status(self) -> int | None:
        """The HTTP status of the response."""
        value = self.first(b":status")
        return None if value is None else int(value)

    @property
    def grpc_status(self) -> int | None:
        """The gRPC status of the response."""
        value = self.first(b"grpc-status")
        return None if value is None else int(value)


class Received:
    """The server's frames in order, its replies by stream, and the credit in either direction.

    Invariant: every frame taken was legal, else ``take`` raised. Owned by one ``Client``.
    """

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.replies: dict[int, Reply] = {}
        self.settings: dict[int, int] = {}
        self.goaway: Frame | None = None
        self.decoder = hpack.Decoder()
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self.initial_grant_bytes = DEFAULT_WINDOW_BYTES
        self.granted: dict[int, int] = {0: DEFAULT_WINDOW_BYTES}  # what the server may still send
        self.credit: dict[int, int] = {0: DEFAULT_WINDOW_BYTES}  # what the client may still send
        self._fragment: Frame | None = None  # HEADERS seen, END_HEADERS not yet

    def reply(self, stream: int) -> Reply:
        """The reply on ``stream``, empty where none has begun."""
        return self.replies.setdefault(stream, Reply())

    def credit_of(self, stream: int) -> int:
        """How many bytes of DATA the client may send on ``stream`` now."""
        initial = self.settings.get(Setting.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW_BYTES)
        return min(self.credit[0], self.credit.setdefault(stream, initial))

    def spend(self, stream: int, size_bytes: int) -> None:
        """Count DATA that the client sends."""
        self.credit_of(stream)
        self.credit[0] -= size_bytes
        self.credit[stream] -= size_bytes

    def grant(self, stream: int, size_bytes: int) -> None:
        """Let the server send more on ``stream``."""
        self.granted[stream] = self.granted.get(stream, self.initial_grant_bytes) + size_bytes

    def regrant(self, initial_bytes: int) -> None:
        """Change the initial grant of streams, those open now included."""
        change = initial_bytes - self.initial_grant_bytes
        for stream in self.granted:
            if stream:
                self.granted[stream] += change
        self.initial_grant_bytes = initial_bytes

    def take(self, frame: Frame) -> None:
        """Count and check the next frame. Raises: ServerBrokeError."""
        require(bool(self.frames) or frame.kind == Kind.SETTINGS, "3.4: the server's preface is a SETTINGS frame")
        require(len(frame.payload) <= self.max_frame_bytes, f"4.2: {len(frame.payload)} bytes in a frame")
        require(self._fragment is None or frame.kind == Kind.CONTINUATION, "6.2: HEADERS not followed by CONTINUATION")
        require(frame.stream % 2 == 0 or frame.kind not in (Kind.SETTINGS, Kind.PING, Kind.GOAWAY), "on a stream")
        require(frame.stream % 2 == 1 or frame.stream == 0, f"5.1.1: frame on stream {frame.stream}")
        self.frames.append(frame)
        match frame.kind:
            case Kind.DATA:
                self._data(frame)
            case Kind.HEADERS | Kind.CONTINUATION:
                self._headers(frame)
            case Kind.RST_STREAM:
                require(frame.stream > 0 and len(frame.payload) == 4, "6.4: bad RST_STREAM")
                self.reply(frame.stream).reset = frame.number()
            case Kind.SETTINGS:
                self._settings(frame)
            case Kind.PING:
                require(len(frame.payload) == 8, "6.7: bad PING")
            case Kind.GOAWAY:
                self._goaway(frame)
            case Kind.WINDOW_UPDATE:
                self._window_update(frame)
            case Kind.PUSH_PROMISE:
                require(False, "8.4: a push nobody asked for")

    def _data(self, frame: Frame) -> None:
        reply = self.reply(frame.stream)
        require(bool(reply.sections) and not reply.over, f"5.1: DATA on stream {frame.stream} outside a response")
        self.grant(0, -len(frame.payload))
        self.grant(frame.stream, -len(frame.payload))
        if frame.payload:
            require(min(self.granted[0], self.granted[frame.stream]) >= 0, "6.9.1: more DATA than the window allows")
        padded = frame.flags & Flag.PADDED
        reply.content += frame.payload[1 : len(frame.payload) - frame.payload[0]] if padded else frame.payload
        reply.ended = bool(frame.flags & Flag.END_STREAM)

    def _headers(self, frame: Frame) -> None:
        if frame.kind == Kind.CONTINUATION:
            start = self._fragment
            if start is None or start.stream != frame.stream:
                raise ServerBrokeError("6.10: CONTINUATION of nothing")
            frame = Frame(start.kind, start.flags | frame.flags & Flag.END_HEADERS, start.stream,
                          start.payload + frame.payload)  # fmt: skip
        require(not frame.flags & (Flag.PADDED | Flag.PRIORITY), "padding and priority are not expected of a server")
        self._fragment = None if frame.flags & Flag.END_HEADERS else frame
        if self._fragment is None:
            decoded = self.decoder.decode(frame.payload, raw=True)
            self._section(frame, cast("list[Field]", [(bytes(name), bytes(value)) for name, value in decoded]))

    def _section(self, frame: Frame, fields: list[Field]) -> None:
        reply = self.reply(frame.stream)
        require(not reply.over, f"5.1: HEADERS on stream {frame.stream} after its end")
        names = [name for name, _ in fields]
        final = [s for s in reply.sections if not dict(s).get(b":status", b"").startswith(b"1")]
        pseudo = [name for name in names if name.startswith(b":")]
        require(pseudo == ([] if final else [b":status"]), f"8.3: pseudo-header fields {pseudo}")
        require(names[: len(pseudo)] == pseudo, "8.3: pseudo-header fields come first")
        require(all(name == name.lower() for name in names), f"8.2.1: upper case in {names}")
        require(not CONNECTION_SPECIFIC & set(names), f"8.2.2: connection-specific field in {names}")
        require(not final or bool(frame.flags & Flag.END_STREAM), "8.1: trailers without END_STREAM")
        reply.sections.append(fields)
        reply.ended = bool(frame.flags & Flag.END_STREAM)

    def _settings(self, frame: Frame) -> None:
        if frame.flags & Flag.ACK:
            require(not frame.payload and len(self.frames) > 1, "6.5: bad acknowledgement")
            return
        require(len(frame.payload) % 6 == 0, "6.5: bad SETTINGS")
        before = self.settings.get(Setting.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW_BYTES)
        for at in range(0, len(frame.payload), 6):
            self.settings[int.from_bytes(frame.payload[at : at + 2])] = frame.number(at + 2)
        after = self.settings.get(Setting.INITIAL_WINDOW_SIZE, DEFAULT_WINDOW_BYTES)
        require(after <= MAX_WINDOW_BYTES, "6.5.2: the initial window is above its maximum")
        require(not self.settings.get(Setting.ENABLE_PUSH), "6.5.2: a server that enables push")
        require(1 << 14 <= self.settings.get(Setting.MAX_FRAME_SIZE, 1 << 14) < 1 << 24, "6.5.2: bad frame size")
        for stream in self.credit:
            if stream:
                self.credit[stream] += after - before

    def _goaway(self, frame: Frame) -> None:
        require(len(frame.payload) >= 8, "6.8: bad GOAWAY")
        if self.goaway is not None:
            require(frame.number() <= self.goaway.number(), "6.8: the last stream identifier was increased")
        self.goaway = frame

    def _window_update(self, frame: Frame) -> None:
        require(len(frame.payload) == 4 and frame.number() > 0, "6.9: bad WINDOW_UPDATE")
        self.credit_of(frame.stream)
        self.credit[frame.stream] += frame.number()
        require(self.credit[frame.stream] <= MAX_WINDOW_BYTES, "6.9.1: the server overflowed a window")

    @property
    def goaway_code(self) -> int | None:
        """The error code of the last GOAWAY that is not NO_ERROR, or None."""
        if self.goaway is None or self.goaway.number(4) == Code.NO_ERROR:
            return None
        return self.goaway.number(4)
