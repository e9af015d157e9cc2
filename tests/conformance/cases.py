"""A case: a stimulus for one fresh connection, the rule it tests, and every outcome that the rule allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import pytest

from tests.conformance.client import Address, Client
from tests.conformance.frames import Code, Kind, Setting

Stimulus = Callable[[Client], None]


class Level(Enum):
    """How strongly the document asks, by the words of RFC 2119; EXAMPLE for what follows from the whole."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"
    EXAMPLE = "EXAMPLE"


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    """GOAWAY with one of the codes, then close; or just the close, since GOAWAY is best effort (RFC 9113, 5.4.1)."""

    codes: tuple[Code, ...]

    def seen(self, client: Client) -> bool:
        """Return whether the connection ended so."""
        code = client.received.goaway_code
        return client.closed and (code is None or code in self.codes)


@dataclass(frozen=True, slots=True)
class StreamError:
    """RST_STREAM with one of the codes on ``stream``; the connection lives."""

    codes: tuple[Code, ...]
    stream: int = 1

    def seen(self, client: Client) -> bool:
        """Return whether the stream was reset so."""
        return not client.closed and client.received.reply(self.stream).reset in self.codes


@dataclass(frozen=True, slots=True)
class Refused:
    """A complete HTTP response with a 4xx status on ``stream``; the connection lives."""

    stream: int = 1

    def seen(self, client: Client) -> bool:
        """Return whether the request was refused so."""
        reply = client.received.reply(self.stream)
        return not client.closed and reply.ended and 400 <= (reply.http_status or 0) < 500


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete response with status 200 on each of the streams; the connection lives."""

    streams: tuple[int, ...] = (1,)

    def seen(self, client: Client) -> bool:
        """Wait for the replies and return whether they came so."""
        return not client.closed and all(
            client.reply(stream).ended and client.reply(stream).http_status == 200 for stream in self.streams
        )


@dataclass(frozen=True, slots=True)
class Alive:
    """The connection lives and no stream was reset."""

    def seen(self, client: Client) -> bool:
        """Return whether the connection is alive."""
        resets = any(reply.reset for reply in client.received.replies.values())
        return not client.closed and client.received.goaway is None and not resets


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection ends, with any error code or none."""

    def seen(self, client: Client) -> bool:
        """Return whether the connection ended."""
        return client.closed


Outcome = ConnectionFault | StreamError | Refused | Answered | Alive | Closed


def connection_error(*codes: Code) -> ConnectionFault:
    """The connection ends with one of the codes."""
    return ConnectionFault(codes)


def stream_error(*codes: Code, stream: int = 1) -> StreamError:
    """The stream ends with one of the codes."""
    return StreamError(codes, stream)


def either_error(*codes: Code, stream: int = 1) -> tuple[Outcome, ...]:
    """The stream or, as section 5.4.1 permits, the connection ends with one of the codes."""
    return StreamError(codes, stream), ConnectionFault(codes)


MALFORMED: tuple[Outcome, ...] = (*either_error(Code.PROTOCOL_ERROR), Refused())
"""What section 8.1.1 allows for a malformed request: an error, before it perhaps a response."""


@dataclass(frozen=True, slots=True)
class Case:
    """One stimulus and its rule. ``preface`` is whether the handshake is done before it."""

    name: str
    rule: str
    level: Level
    stimulus: Stimulus
    allowed: tuple[Outcome, ...]
    preface: bool
    settings: tuple[tuple[int, int], ...]

    def run(self, address: Address, pieces_bytes: int = 0) -> bool:
        """Return whether the server, if it closed, said GOAWAY first, as it should except to a wrong preface.

        Raises: AssertionError where the server does none of what is allowed.
        """
        with Client(address) as client:
            if self.preface:
                client.handshake(*self.settings)
            self.stimulus(client)
            if pieces_bytes:
                client.flush(pieces_bytes)
            if Closed() in self.allowed and len(self.allowed) == 1:
                client.until_closed()
            client.settle()
            assert any(outcome.seen(client) for outcome in self.allowed), self._story(client)
            return not client.closed or client.received.goaway is not None or Closed() in self.allowed

    def _story(self, client: Client) -> str:
        received = client.received
        replies = {n: (r.http_status, r.grpc_status, r.reset) for n, r in received.replies.items()}
        kinds = [Kind(f.kind).name if f.kind < 10 else f.kind for f in received.frames[-6:]]
        return (
            f"\n{self.rule}\nallowed: {self.allowed}\ngot: goaway {received.goaway_code}, closed {client.closed}, "
            f"stream: (http, grpc, reset) {replies}, last frames {kinds}"
        )


class Suite:
    """The cases of one document part, in the order of their definition. Owned by its module."""

    def __init__(self, document: str) -> None:
        self._document = document
        self._cases: list[Case] = []

    def case(
        self, *allowed: Outcome, preface: bool = True, settings: tuple[tuple[int, int], ...] = ()
    ) -> Callable[[Stimulus], Stimulus]:
        """Add a stimulus. Its docstring begins with section and level: ``6.9 MUST: a quotation or a summary``."""

        def add(stimulus: Stimulus) -> Stimulus:
            text = " ".join((stimulus.__doc__ or "").split())
            parts = re.fullmatch(r"([\d.]+|[A-Z][\w -]+) (MUST|SHOULD|MAY|EXAMPLE): (.*)", text)
            assert parts, f"{stimulus.__name__}: the docstring must begin with a section and a level"
            level = Level(parts[2])
            rule = f"{self._document}, {parts[1]} ({level.value}): {parts[3]}"
            self._cases.append(Case(stimulus.__name__, rule, level, stimulus, allowed, preface, settings))
            return stimulus

        return add

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def parameters(self) -> list[object]:
        """The cases for pytest, each under its name."""
        return [pytest.param(case, id=case.name) for case in self._cases]


BLOCKED = ((Setting.INITIAL_WINDOW_SIZE, 0),)
"""Settings that keep a finished request half-closed: the response cannot go out before there is credit."""
