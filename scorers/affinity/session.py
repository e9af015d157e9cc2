"""Which endpoint a client's session belongs to."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from scorers.base import Candidate, Request, Scratch

MAX_SESSIONS = 65_536
"""Number of sessions that one instance remembers, least recently used forgotten first: 20 MB at most. A guess."""
MAX_TOKEN_CHARACTERS = 1_024
"""The longest token that is read: a Kubernetes name has at most 317 characters."""
_ID_CHARACTERS = 64  # longer ids, which clients choose, are stored as a digest


def identity_of(candidate: Candidate) -> str:
    """Return what a session is bound to: ``namespace/name``, or the address of an endpoint without a name."""
    return candidate.name or candidate.address


class SessionTable:
    """Sessions by id, each with its endpoint, for as long as they are used.

    Invariant: at most ``limit`` sessions, least recently used first; ``used`` only grows along the order. A session
    that was not used for ``ttl_s`` has expired; its memory is freed by the first ``bind`` that comes ``sweep_s`` after
    the last sweep. Owner: the event loop.
    """

    def __init__(self, ttl_s: float, sweep_s: float, limit: int = MAX_SESSIONS) -> None:
        self._ttl_s, self._sweep_s, self._limit = ttl_s, sweep_s, limit
        self._sessions: OrderedDict[str | bytes, tuple[str, float]] = OrderedDict()  # endpoint, time of last use
        self._now = float("-inf")
        self._next_sweep = float("-inf")

    def __len__(self) -> int:
        return len(self._sessions)

    def endpoint(self, session: str, now: float) -> str | None:
        """Return the endpoint of ``session`` at ``now``; None if the session is unknown or has expired."""
        entry = self._sessions.get(_key(session))
        return None if entry is None or entry[1] + self._ttl_s < max(now, self._now) else entry[0]

    def bind(self, session: str, endpoint: str, now: float) -> None:
        """Bind ``session`` to ``endpoint``, used at ``now``.

        Requests that waited have an earlier time than those before them, so the table's clock never goes back.
        """
        self._now = now = max(now, self._now)
        key = _key(session)
        self._sessions[key] = (endpoint, now)
        self._sessions.move_to_end(key)
        if len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)
        if now >= self._next_sweep:
            self._next_sweep = now + self._sweep_s
            while next(iter(self._sessions.values()))[1] + self._ttl_s < now:  # ends at the one just bound
                self._sessions.popitem(last=False)


def _key(session: str) -> str | bytes:
    if len(session) <= _ID_CHARACTERS:
        return session
    return blake2b(session.encode(errors="surrogatepass"), digest_size=16).digest()


class Affinity(Protocol):
    """The method by which a session finds its endpoint again."""

    sets_header: bool
    """Whether clients carry the session, so that responses need a header."""

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """Return the position of the session's endpoint among ``candidates``.

        None without a session, or if the endpoint is not among the candidates.
        """

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note the pick of ``candidate`` for the session."""

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:
        """Return the headers to set on the response."""


class CarriedByClients:
    """Sessions that clients carry: a header sent back by the client names the endpoint, and nothing is remembered here.

    The value is the endpoint's identity in base64, as the Go picker writes it. It is neither secret nor signed, so a
    client can choose any endpoint that the filters leave.
    """

    sets_header = True

    def __init__(self, header: str) -> None:
        self._header = header.lower()

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """Implement ``Affinity.position``; a value that is not base64 is no session."""
        token = request.headers.get(self._header)
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            return None
        try:
            wanted = b64decode(token, validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return find(wanted, candidates)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Do nothing, since the client remembers."""

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:
        """Return the header for the client to send with the next request."""
        return {self._header: b64encode(identity_of(candidate).encode()).decode()}


class RememberedHere:
    """Sessions that are remembered here: the client sends an id of its own.

    A session moves to another endpoint only if its own is not among the candidates.
    """

    sets_header = False

    def __init__(self, headers: Sequence[str], table: SessionTable) -> None:
        self._headers = tuple([header.lower() for header in headers])
        self.table = table
        self._kept = Scratch[str]()  # the session's endpoint, if it is among the candidates

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """Implement ``Affinity.position`` with the endpoint from the table."""
        session = self._session(request)
        endpoint = None if session is None else self.table.endpoint(session, request.received_s)
        place = None if endpoint is None else find(endpoint, candidates)
        if endpoint is None or place is None:
            self._kept.take(request)
        else:
            self._kept.put(request, endpoint)
        return place

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Bind a session that has no endpoint among the candidates; other sessions stay, and count as used."""
        session = self._session(request)
        if session is None:
            return
        endpoint = self._kept.take(request)
        self.table.bind(session, endpoint or identity_of(candidate), request.received_s)

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Return no headers, since the id is the client's own."""
        return {}

    def _session(self, request: Request) -> str | None:
        for header in self._headers:
            if session := request.headers.get(header):
                return session
        return None


def find(identity: str, candidates: Sequence[Candidate]) -> int | None:
    """Return the position of the endpoint with that identity; None if it is not there."""
    for position, candidate in enumerate(candidates):
        if identity == (candidate.name or candidate.address):
            return position
    return None
