"""The timers of a connection: for its handshake, for its calls' deadlines, and for a sweep every few seconds."""

from __future__ import annotations

import asyncio
from typing import Protocol

from epp.wire.session import Session

_SWEEP_S = 5.0


class Watched(Protocol):
    """The link whose timers these are."""

    def abort(self) -> None:
        """End the connection at once, without a GOAWAY."""

    def flush(self) -> None:
        """Write the session's output to the transport."""

    def swept(self, now: float) -> None:
        """Do the link's own work of every few seconds."""


class Watch:
    """The timers of one connection. Owned by its link, which calls ``stop`` when the connection is lost."""

    __slots__ = ("_deadline", "_deadline_at", "_link", "_loop", "_session", "_sweep")

    def __init__(self, link: Watched, session: Session, handshake_s: float) -> None:
        """The client has ``handshake_s`` seconds to send its preface."""
        self._link = link
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = float("inf")
        self._sweep = self._loop.call_later(handshake_s, self._on_handshake_due)

    def expect(self, deadline: float) -> None:
        """End calls at ``deadline``, which is before any that was expected."""
        if deadline < self._deadline_at:
            self._set(deadline)

    def stop(self) -> None:
        """Cancel all timers of the connection."""
        self._sweep.cancel()
        if self._deadline:
            self._deadline.cancel()

    def _set(self, deadline: float) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline_at = deadline
        self._deadline = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline, self._deadline_at = None, float("inf")
        self._session.expire(self._loop.time())
        self._link.flush()

    def _on_handshake_due(self) -> None:
        if self._session.connection.greeted:
            self._sweep = self._loop.call_later(_SWEEP_S, self._on_sweep)
        else:
            self._link.abort()

    def _on_sweep(self) -> None:
        now = self._loop.time()
        self._session.drop_stalled(now)
        self._session.drop_silent(now)
        self._link.flush()
        self._link.swept(now)
        self._sweep = self._loop.call_later(_SWEEP_S, self._on_sweep)
