"""The gRPC service that the cases call: ``Unary`` and ``Stream`` echo, unless a request wants something else."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable

from typing_extensions import override

from epp.wire.service import Call, Handler, Methods, Status

WANT = "want"
"""Request metadata: ``metadata`` is answered with the request's metadata in JSON, ``status`` with the status in the
field ``status`` and the message as its text, ``silence`` with nothing."""


class Endings:
    """How often each call ended, by the name it gave in its metadata. The test's thread may wait for a change."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, call: str, ending: str) -> None:
        """Count one ending of ``call``."""
        with self._changed:
            self._counts[call, ending] += 1
            self._changed.notify_all()

    def wait(self, call: str, ending: str, limit_s: float = 2.0) -> int:
        """How often ``call`` has ended so, once it has or the limit has passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._counts[call, ending] > 0, limit_s)
            return self._counts[call, ending]


class Echo(Handler):
    """One call. ``at_once`` answers each message as it comes, else all when the client has sent the last."""

    def __init__(self, call: Call, endings: Endings, *, at_once: bool) -> None:
        self._call = call
        self._endings = endings
        self._at_once = at_once
        self._metadata = call.metadata
        self._fields = dict(call.metadata)
        self._kept: list[bytes] = []

    @override
    def received(self, message: bytes) -> None:
        if self._at_once:
            self._call.send(message)
        else:
            self._kept.append(message)

    @override
    def half_closed(self) -> None:
        self._endings.add(self._fields.get("name", ""), "half-closed")
        match self._fields.get(WANT):
            case None:
                for message in self._kept:
                    self._call.send(message)
                self._call.finish()
            case "metadata":
                self._call.send(json.dumps([list(field) for field in self._metadata]).encode())
                self._call.finish()
            case "status":
                self._call.finish(Status(int(self._fields["status"])), b"".join(self._kept).decode())

    @override
    def cancelled(self) -> None:
        self._endings.add(self._fields.get("name", ""), "cancelled")


def methods(endings: Endings) -> Methods:
    """Both methods, which report to ``endings``."""

    def factory(at_once: bool) -> Callable[[Call], Handler]:
        return lambda call: Echo(call, endings, at_once=at_once)

    return {"/test.Echo/Unary": factory(at_once=False), "/test.Echo/Stream": factory(at_once=True)}
