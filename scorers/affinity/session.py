"""Which endpoint a client's session belongs to."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol
from weakref import ref

from scorers.base import Candidate, Request

MAX_SESSIONS = 65_536
"""Remembered by one instance, the least recently used forgotten first: 20 MB at most. A guess."""
MAX_TOKEN_CHARACTERS = 1_024
"""Of a token that is read: a Kubernetes name has 317 at most."""
_ID_CHARACTERS = 64  # longer ones are remembered by a digest: a client chooses them


def identity_of(candidate: Candidate) -> str:
    """What a session is bound to: ``namespace/name``, the address of an endpoint without a name."""
    return candidate.name or candidate.address


class SessionTable:
    """Sessions by id, each with its endpoint, for as long as they are used.

    Invariant: at most ``limit`` of them, least recently used first; ``used`` only grows along the order. A session that
    was not used for ``ttl_s`` is not known any more; its memory is given back by the first ``bind`` that comes
    ``sweep_s`` after the last sweep. Owner: the event loop.
    """

    def __init__(self, ttl_s: float, sweep_s: float, limit: int = MAX_SESSIONS) -> None:
        self._ttl_s, self._sweep_s, self._limit = ttl_s, sweep_s, limit
        self._sessions: OrderedDict[str | bytes, tuple[str, float]] = OrderedDict()  # endpoint, last used
        self._now = float("-inf")
        self._next_sweep = float("-inf")

    def __len__(self) -> int:
        return len(self._sessions)

    def endpoint(self, session: str, now: float) -> str | None:
        """Whom ``session`` belongs to at ``now``; None for an unknown one, or one unused for too long."""
        entry = self._sessions.get(_key(session))
        return None if entry is None or entry[1] + self._ttl_s < max(now, self._now) else entry[0]

    def bind(self, session: str, endpoint: str, now: float) -> None:
        """Let ``session`` belong to ``endpoint``, used at ``now``. Requests that waited bring an earlier time than
        those before them: the clock of the table never goes back."""
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
    """How a session finds its endpoint again."""

    tells_clients: bool
    """Whether clients carry it."""

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """Where the endpoint of the request's session stands among ``candidates``; None without a session, or where it
        is not among them."""

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Note the pick."""

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:
        """What the client is told."""


class CarriedByClients:
    """The client sends back a header that says the endpoint; nothing is remembered here.

    The value is the endpoint's identity in base64, as the Go picker writes it: not secret, and not signed, so a client
    can choose any endpoint that the filters leave.
    """

    tells_clients = True

    def __init__(self, header: str) -> None:
        self._header = header.lower()

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """As the protocol says; a value that is no base64 is no session."""
        token = request.headers.get(self._header)
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            return None
        try:
            wanted = b64decode(token, validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        return find(wanted, candidates)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Nothing to note."""

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:
        """The header for the next request."""
        return {self._header: b64encode(identity_of(candidate).encode()).decode()}


class RememberedHere:
    """The client sends an id of its own; which endpoint serves it is remembered here.

    A session moves to another endpoint only when its own is not among the candidates.
    """

    tells_clients = False

    def __init__(self, headers: Sequence[str], table: SessionTable) -> None:
        self._headers = tuple([header.lower() for header in headers])
        self.table = table
        # Its endpoint was among the candidates. Its pick follows in the same step, or it is gone: it is not kept.
        self._placed: ref[Request] | None = None

    def position(self, request: Request, candidates: Sequence[Candidate]) -> int | None:
        """As the protocol says."""
        session = self._session(request)
        endpoint = None if session is None else self.table.endpoint(session, request.received_s)
        place = None if endpoint is None else find(endpoint, candidates)
        self._placed = None if place is None else ref(request)
        return place

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Bind a session that has no endpoint, or whose endpoint is gone; the others stay, and count as used."""
        session = self._session(request)
        if session is None:
            return
        now = request.received_s
        placed = self._placed is not None and self._placed() is request
        endpoint = self.table.endpoint(session, now) if placed else None
        self._placed = None
        self.table.bind(session, endpoint or identity_of(candidate), now)

    def response_headers(self, candidate: Candidate) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing: the id is the client's own."""
        return {}

    def _session(self, request: Request) -> str | None:
        for header in self._headers:
            if session := request.headers.get(header):
                return session
        return None


def find(identity: str, candidates: Sequence[Candidate]) -> int | None:
    """Where the endpoint of that identity stands."""
    for position, candidate in enumerate(candidates):
        if identity == (candidate.name or candidate.address):
            return position
    return None
