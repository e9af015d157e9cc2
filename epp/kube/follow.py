"""Keep up with all objects of one kind: a list, then a watch from the list's version, for as long as the picker runs.

Laws:
1. The listener's objects are those of the API server at some version; without a new list, versions only go forward.
2. A list that ends in the middle changes nothing.
3. No read waits without a deadline, and no failure ends the follower: it waits, longer after each failure in a row,
   and begins again where it stopped, or with a new list where that version is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from epp.errors import ConfigError
from epp.kube.backoff import Backoff
from epp.kube.client import Client
from epp.kube.errors import KubeError, NoConnection, Refused, refusal
from epp.kube.events import Change, EventDecoder
from epp.kube.objects import Decoder, Listener, Object, Status, WatchEvent
from epp.kube.pages import NAMELESS, PageDecoder, PageSize, read_list
from epp.runtime.slices import sliced

T = TypeVar("T", bound=Object)

PAGE = 250
"""The most objects in a page of a list."""
WATCH_S = 300, 600
"""A watch ends by itself after a random time between these. Source: client-go's reflector."""
SETTLED_S = 1.0
"""How long a watch must be open until an outage counts as over: until then each further failure waits longer, and no
further warning is logged. A guess."""
IN_VAIN = 3
"""After this many watches in a row that could not be opened, or failed before their first event, the list is read
again: the failure may come from their version, or from that event. A guess."""
_LIST_AGAIN = (400, 410, 504)
"""The refusals of a watch after which its version is of no use: not valid, no longer kept, or (after etcd was restored
from a backup) larger than every version there is. Source: client-go's reflector, which lists again after each."""
_NOT_THE_VERSION = (401, 403, 429, 502, 503)
"""The refusals of a watch for which its version cannot be the reason: no identity or right, or a server that is too
busy or away, for which a list would be one more burden."""
_CHANGES = ("ADDED", "MODIFIED", "DELETED")
_NOT_SERVED = (403, 404)
"""The refusals of a kind that the picker may not read, or that the API server does not know."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of object in one namespace."""

    path: str
    """Of the list: ``/api/v1/namespaces/default/pods``."""
    type: type[T]
    selector: str = ""
    """A label selector that the API server applies."""
    name: str = ""
    """The name of the only object that is followed; empty for all of them."""
    quiet: bool = False
    """Whether the kind may be unknown or not allowed, of which its owner informs: that is no warning and no failure."""


_STATUS = Decoder(Status)


class Follower(Generic[T]):
    """Follows one kind for one listener. Owner: the event loop; ``run`` is called once."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        listener: Listener[T],
        *,
        random: Callable[[], float],
        clock: Callable[[], float],
        page: int = PAGE,
        needed: asyncio.Event | None = None,
        ends_on: Container[int] = (),
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """``random`` gives numbers in [0, 1), ``clock`` monotonic seconds; ``on_failure`` is called after each failure.

        A kind that is refused with 403 or 404 is asked for again only while ``needed`` is set. A refusal with a status
        in ``ends_on`` ends ``run``.
        """
        self.synced = False
        """Whether a whole list was ever read."""
        self.trouble: str | None = None
        """The error of the last request; None while the API server answers."""
        self.refused = 0
        """The HTTP status with which the API server refused the last request: 404 if it does not know the kind."""
        self.heard_at: float | None = None
        """When the API server last sent something, by ``clock``; None if it never did."""
        self.lists = 0
        self.events = 0
        self.failures = 0
        self._client, self._kind, self._listener = client, kind, listener
        self._random, self._clock, self._page = random, clock, PageSize(page)
        self._needed, self._ends_on, self._on_failure = needed, ends_on, on_failure
        self._backoff = Backoff(random)
        self._version: str | None = None
        self._in_vain = 0  # watches in a row without an event, of those that did not end in time
        self._warned = False  # one warning for each outage
        self._pages = PageDecoder(kind.type)
        self._events = EventDecoder(kind.type)

    async def run(self) -> None:
        """Follow until the task is cancelled. Raises: Refused with one of the statuses that end it."""
        try:
            await self._repeat()
        finally:
            self._end_outage()

    async def _repeat(self) -> None:
        while True:
            try:
                if self._version is None:
                    await self._read_list()
                await self._follow()
            except (KubeError, ConfigError) as error:
                if isinstance(error, Refused) and error.status in self._ends_on:
                    raise
                await asyncio.sleep(self._failed(error))
                if self._needed is not None and self.refused in _NOT_SERVED:
                    await self._needed.wait()

    async def _read_list(self) -> None:
        """Read every page, then give the listener the whole list.

        A page that is no longer kept raises like every failure, and the list begins anew after the wait.
        """
        kind, strict = self._kind, bool(self._kind.name)  # the only object cannot be left out
        objects, version = await read_list(
            self._client, kind.path, self._pages, self._query(), self._page, strict=strict
        )
        await self._use(objects, version)

    async def _use(self, objects: list[T], version: str) -> None:
        await sliced(self._listener.listed(objects))
        self._version, self._in_vain = version, 0
        self.lists += 1
        self.synced = True
        self._answered()

    async def _follow(self) -> None:
        """Apply one watch's events. Returns when the API server ends it in time. Raises: KubeError."""
        shortest, longest = WATCH_S
        query = {
            **self._query(),
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(int(shortest + self._random() * (longest - shortest))),
        }
        self._in_vain += 1
        async with self._client.watch(self._kind.path, query, self._events) as events:
            opened = self._clock()
            self._answered()
            settled = asyncio.get_running_loop().call_later(SETTLED_S, self._settled)
            try:
                async for event in events:
                    self._apply(event)
            finally:
                settled.cancel()
        if self._clock() - opened < SETTLED_S:  # a server that ends watches at once is not asked in a loop
            raise KubeError(f"watch {self._kind.path}: ended at once")
        self._in_vain = 0
        self._answered()

    def _apply(self, event: Change[T] | WatchEvent) -> None:
        try:
            version = self._change(event)
        except msgspec.DecodeError as error:
            if event.type not in _CHANGES or self._kind.name or not isinstance(event, WatchEvent):
                self._version = None  # a list has the object's state now, or shows the same error
                what = f"watch {self._kind.path}: {event.type} of what cannot be read"
                raise KubeError(f"{what}: {error}") from error
            version = self._leave_out(event.object, str(error))
        self._version = version or self._version
        self.events += 1
        self._in_vain = 0
        self._answered()

    def _change(self, event: Change[T] | WatchEvent) -> str:
        """Apply one event, and return its version.

        Raises: KubeError for one that is an error, or too old; msgspec.DecodeError for an object that cannot be read.
        """
        change, item = event.type, event.object if isinstance(event, Change) else self._decoded(event)
        self._refuse_older(item.metadata.resource_version)
        if change == "ADDED" or change == "MODIFIED":
            self._listener.changed(item)
        elif change == "DELETED":
            self._listener.removed(item)
        elif change != "BOOKMARK":
            self._version = None
            raise KubeError(f"watch {self._kind.path}: an event of the unknown type {change[:40]!r}")
        return item.metadata.resource_version

    def _decoded(self, event: WatchEvent) -> T:
        """Return the object of an event; a bookmark is an object that has metadata only.

        Raises: Refused for an error; msgspec.DecodeError for an object that cannot be read.
        """
        if event.type == "ERROR":
            status = _STATUS.decode(event.object)
            raise refusal(f"watch {self._kind.path}", status, status.code)
        item = self._events.one.decode(event.object)
        if event.type in _CHANGES and not item.metadata.name:
            raise msgspec.ValidationError(NAMELESS)
        return item

    def _leave_out(self, raw: msgspec.Raw, problem: str) -> str:
        """Count an object that cannot be read, which is gone until it can be. Returns its version, if it has one."""
        metadata = self._client.unreadable.note(self._kind.path, raw, problem)
        version = metadata.get("resourceVersion", "")
        self._refuse_older(version)
        if "name" in metadata:
            self._listener.removed(self._events.one.decode(msgspec.json.encode({"metadata": metadata})))
        return version

    def _refuse_older(self, version: str) -> None:
        """Raises: KubeError for an event from before the last one, after which a new list is read.

        The same version again changes nothing. Versions of one kind are numbers that grow, by Kubernetes 1.35's rules.
        """
        before = self._version or ""
        if version.isdecimal() and before.isdecimal() and int(version) < int(before):
            self._version = None
            raise KubeError(f"watch {self._kind.path}: an event of version {version} came after {before}")

    def _answered(self) -> None:
        """Note that the API server answers now, which a failure may follow at once."""
        self.heard_at = self._clock()
        self.trouble = None
        self.refused = 0

    def _settled(self) -> None:
        """End an outage: the watch has been open for a while."""
        self._backoff.reset()
        self._end_outage()
        if self._warned:
            self._warned = False
            log.info("%s is followed again", self._kind.path)

    def _failed(self, error: KubeError | ConfigError) -> float:
        """Count a failure. Returns the seconds to wait before the next request."""
        self.refused = error.status if isinstance(error, Refused) else 0
        expected = self._kind.quiet and self.refused in _NOT_SERVED
        self.failures += not expected
        if isinstance(error, NoConnection) or self.refused in _NOT_THE_VERSION:
            self._in_vain = 0
        elif self._in_vain >= IN_VAIN:
            self._version = None
        if isinstance(error, Refused) and error.status in _LIST_AGAIN:
            self._version = None
            if error.expired and not self._backoff.failures:  # the usual end of a version, not an outage
                self._backoff.wait_s(error)
                return 0.0
        if self.refused == 404:
            self._version = None  # an object may have gone with its kind
        if not self._warned and not self._is_known(error):
            self._warned = True
            kept = "what was read last stays in use" if self.synced else "nothing was read yet"
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s; %s, and the API server is asked again", error, kept)
        self.trouble = str(error)
        if self._on_failure is not None:
            self._on_failure()
        return self._backoff.wait_s(error)

    def _is_known(self, error: Exception) -> bool:
        """Return whether another follower of this client has warned of the outage; else this one warns of it."""
        if not isinstance(error, NoConnection):
            return False
        if self._client.outage_of is None:
            self._client.outage_of = self
        return self._client.outage_of is not self

    def _end_outage(self) -> None:
        if self._client.outage_of is self:
            self._client.outage_of = None

    def _query(self) -> Mapping[str, str]:
        kind = self._kind
        query = {"labelSelector": kind.selector} if kind.selector else {}
        return {**query, "fieldSelector": f"metadata.name={kind.name}"} if kind.name else query
