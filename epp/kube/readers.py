"""Lets the Kubernetes API decide which clients may read the metrics: TokenReview, then SubjectAccessReview.

Laws:
1. A token is in no log, no error, and in no memory longer than its review takes: answers are kept under a keyed hash.
2. Requests with one token at the same time are one review; reviews at the same time, and answers kept, are bounded.
3. Tokens that are refused displace no answer about a token that is accepted, and take no place of its next review.
4. No request waits without a deadline.

Source: the caches and statuses are those of the Go picker, whose library is controller-runtime.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.remembered import Remembered
from epp.kube.reviews import User, may_read, my_name, user_of
from epp.kube.rights import manifest, reviews
from epp.metrics.gauges import Reading

USER_S, ALLOWED_S, DENIED_S = 60.0, 300.0, 30.0
"""How long the user of a token is remembered (or that it has none), that a user may read, and that one may not."""
MOST = 1024
"""The most answers that each memory has. A guess: a cluster has a few readers."""
AT_ONCE, WAITING = 8, 64
"""How many reviews are under way at the same time, and how many more may wait. Guesses."""
KNOWN_S, KNOWN_AT_ONCE, KNOWN_WAITING = 3600.0, 4, 16
"""How long a token that was allowed to read has places of its own, and how many there are. Guesses."""
ANSWER_S, NAME_S = 8.0, 1.0
"""The longest that a reader waits for its review, and for the picker's own name after one that failed: together less
than the 10 s of Prometheus' default timeout."""

log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """The status and body of the answer; status 200 lets the request pass."""

    status: int
    sentence: str


ALLOWED = Verdict(200, "")
_NO_TOKEN = Verdict(401, "no bearer token; send that of a service account: Authorization: Bearer TOKEN")
_BAD_TOKEN = Verdict(401, "the API server does not accept this token: it is wrong, expired, or for another audience")
_TOO_MANY = Verdict(429, "too many tokens are being reviewed; try again in a second")
_AWAY = Verdict(500, "the review failed: the API server does not answer; the picker's log has the reason")
_FORBIDDEN = Verdict(500, "the review failed: the picker may not ask for it; its log has the missing rule")


class Readers:
    """The readers of the metrics port. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(self, client: Client, clock: Callable[[], float], *, answer_s: float = ANSWER_S) -> None:
        self._client, self._answer_s = client, answer_s
        self._secret = secrets.token_bytes(32)
        self._users = Remembered[bytes, User](USER_S, MOST, clock)
        self._refused_tokens = Remembered[bytes, bool](USER_S, MOST, clock)
        self._allowed = Remembered[bytes, bool](ALLOWED_S, MOST, clock)
        self._denied = Remembered[bytes, bool](DENIED_S, MOST, clock)
        self._readers = Remembered[bytes, bool](KNOWN_S, MOST, clock)  # the tokens that were allowed at last
        self._under_way: dict[bytes, asyncio.Task[Verdict]] = {}
        self._waiting: Counter[bool] = Counter()  # the reviews under way, by whether the token is a reader's
        self._places = {False: asyncio.Semaphore(AT_ONCE), True: asyncio.Semaphore(KNOWN_AT_ONCE)}
        self._verdicts: Counter[int] = Counter()
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why ``/metrics`` cannot be read now; None after a review that succeeded."""
        return self._trouble

    async def start(self) -> None:
        """Nothing is begun before the first request."""

    async def stop(self) -> None:
        """End the reviews under way."""
        for task in self._under_way.values():
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    async def verdict(self, method: str, path: str, authorization: str | None) -> Verdict:
        """Return whether a request may read ``path``, by the value of its header ``Authorization``."""
        found = await self._verdict(method.lower(), path, authorization)
        self._verdicts[found.status] += 1
        return found

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        counts = [((str(status),), float(count)) for status, count in sorted(self._verdicts.items())]
        text = "Requests to the metrics port whose reader was reviewed, by the status of the answer."
        yield Reading("tierwise_metrics_readers", text, ("status",), counts, counter=True)

    async def _verdict(self, verb: str, path: str, authorization: str | None) -> Verdict:
        token = bearer(authorization)
        if token is None:
            return _NO_TOKEN
        key = self._key(token, verb, path)
        known = self._known(self._key(token), verb, path)
        if known is not None:
            return known
        task = self._under_way.get(key)
        if task is None:
            reader = bool(self._readers.get(self._key(token)))
            if self._waiting[reader] >= (KNOWN_AT_ONCE + KNOWN_WAITING if reader else AT_ONCE + WAITING):
                return _TOO_MANY
            review = self._review(token, verb, path, self._places[reader])
            task = self._under_way[key] = asyncio.create_task(review, name="metrics-review")
            self._waiting[reader] += 1
            task.add_done_callback(lambda _: self._reviewed(key, reader=reader))
        return await asyncio.shield(task)  # a reader that leaves does not end the review for the others

    def _reviewed(self, key: bytes, *, reader: bool) -> None:
        del self._under_way[key]
        self._waiting[reader] -= 1

    def _known(self, key: bytes, verb: str, path: str) -> Verdict | None:
        if self._refused_tokens.get(key):
            return _BAD_TOKEN
        user = self._users.get(key)
        return None if user is None else self._decided(user, verb, path)

    def _decided(self, user: User, verb: str, path: str) -> Verdict | None:
        key = self._user_key(user, verb, path)
        if self._allowed.get(key):
            return ALLOWED
        if self._denied.get(key):
            return Verdict(
                403, f"{user.username} may not {verb} {path}; it needs a ClusterRole with nonResourceURLs: [{path}]"
            )
        return None

    async def _review(self, token: str, verb: str, path: str, places: asyncio.Semaphore) -> Verdict:
        try:
            async with asyncio.timeout(self._answer_s), places:
                return await self._ask(token, verb, path)
        except (KubeError, ConfigError, TimeoutError) as error:
            return await self._failed(error)

    async def _ask(self, token: str, verb: str, path: str) -> Verdict:
        key = self._key(token)
        user = self._users.get(key) or await user_of(self._client, token)
        if user is None:
            self._refused_tokens.put(key, True)
            if self._readers.get(key):
                self._readers.put(key, False)
            self._succeeded()
            return _BAD_TOKEN
        self._users.put(key, user)
        allowed = await may_read(self._client, user, verb, path)
        self._readers.put(key, allowed)
        (self._allowed if allowed else self._denied).put(self._user_key(user, verb, path), True)
        self._succeeded()
        return self._decided(user, verb, path) or _AWAY

    async def _failed(self, error: Exception) -> Verdict:
        forbidden = isinstance(error, Refused) and error.status == 403
        reason = str(error) or f"the API server did not answer within {self._answer_s:g} s"
        if self._trouble is None:  # one warning for each outage, and not one for each scrape
            self._trouble = f"/metrics is answered with 500: {reason}"
            rule = ""
            if forbidden:
                rule = f"; apply this:\n{manifest(reviews().rights, await self._my_name() or 'NAME')}"
            log.warning("%s; --metrics-endpoint-auth=false opens the page to every client%s", self._trouble, rule)
        return _FORBIDDEN if forbidden else _AWAY

    async def _my_name(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(NAME_S):
                return await my_name(self._client)
        return ""

    def _succeeded(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            log.info("/metrics can be read again: the API server reviews its readers")

    def _user_key(self, user: User, verb: str, path: str) -> bytes:
        return self._key(msgspec.json.encode(user).decode(), verb, path)

    def _key(self, *parts: str) -> bytes:
        return blake2b("\0".join(parts).encode(), key=self._secret, digest_size=32).digest()


def bearer(authorization: str | None) -> str | None:
    """Return the token of a header; None if it has none that could be one."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    plain = token.isascii() and token.isprintable() and " " not in token
    return token if scheme.lower() == "bearer" and token and plain else None


Guard = Callable[[str, str, str | None], Awaitable[Verdict]]
"""The type of ``Readers.verdict``."""
