"""Follow a kind of object for as long as the API server serves it, and find it when it is installed later.

A kind that is not there is no error: its custom resource definition may be installed at any time. It is looked for
twice a minute, since a watch of the definitions themselves takes a right on the whole cluster. A kind that is there is
followed by a ``Follower``, which begins again when a right that was missing is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.follow import PAGE, Follower, Kind
from epp.kube.objects import Decoder, Listener, Object

T = TypeVar("T", bound=Object)

LOOK_AGAIN_S = 20.0, 40.0
"""A kind that is missing is looked for after a random time between these: well within a minute of its installation."""
_NOT_FOUND = 404

log = logging.getLogger(__name__)


class KindName(NamedTuple):
    """The name of a kind, as a manifest has it; ``group`` is empty for the core's."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.group}/{self.version}" if self.group else f"{self.kind} of {self.version}"

    @property
    def path(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


class Resource(msgspec.Struct, frozen=True):
    """One kind in the API server's list of what a group serves; subresources such as ``pods/status`` are in it too."""

    name: str = ""
    """The plural name of the kind, which is in paths."""
    kind: str = ""
    namespaced: bool = False


class Resources(msgspec.Struct, frozen=True):
    """What the API server serves of one group and version."""

    resources: tuple[Resource, ...] | None = None


_RESOURCES = Decoder(Resources)


class ServedKind(Generic[T]):
    """Follows one kind for one listener, which has no objects while the kind is missing. Owner: the event loop.

    The listener gets an empty list each time that the kind is found to be missing.
    """

    def __init__(
        self,
        client: Client,
        name: KindName,
        type: type[T],  # noqa: A002 - as in ``Kind``
        listener: Listener[T],
        *,
        namespace: str,
        random: Callable[[], float],
        clock: Callable[[], float],
        plural: str | None = None,
        page: int = PAGE,
        level: int = logging.INFO,
    ) -> None:
        """``plural`` is used where the API server refuses to list what it serves; without it, that is a trouble.

        That the kind is missing is logged on ``level``.
        """
        self.name = name
        self.missing = False
        """Whether the API server does not serve the kind, as far as is known."""
        self._client, self._type, self._listener = client, type, listener
        self._namespace, self._random, self._clock = namespace, random, clock
        self._plural, self._page, self._level = plural, page, level
        self._follower: Follower[T] | None = None
        self._unknown: str | None = None

    @property
    def current(self) -> bool:
        """Whether the listener has all objects as they are now."""
        return self._follower is not None and self._follower.synced and self._follower.trouble is None

    @property
    def trouble(self) -> str | None:
        """Why the objects of a kind that is there may be out of date; None while they are current."""
        return self._unknown if self._follower is None else self._follower.trouble

    @property
    def settled(self) -> bool:
        """Whether the kind is missing, or was read once."""
        return self.missing or (self._follower is not None and self._follower.synced)

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        shortest, longest = LOOK_AGAIN_S
        while True:
            path = await self._path()
            if path is not None:
                await self._follow(path)
            await asyncio.sleep(shortest + self._random() * (longest - shortest))

    async def _path(self) -> str | None:
        """Return the path of the kind's list; None if it is missing, or cannot be found out."""
        found: Resource | None = None
        try:
            served = await self._client.get(self.name.path, _RESOURCES)
            for each in served.resources or ():
                if each.kind == self.name.kind and "/" not in each.name:
                    found = each
        except (KubeError, ConfigError) as error:
            if not (isinstance(error, Refused) and error.status == _NOT_FOUND):
                if self._plural is not None:  # its list has the better error, and waits as long as it should
                    self.missing, self._unknown = False, None
                    return self._list_of(Resource(self._plural, self.name.kind, namespaced=True))
                if self._unknown is None:
                    log.warning("%s; %s is looked for again and again", error, self.name)
                self.missing, self._unknown = False, str(error)
                return None
        self._unknown = None
        if found is None:
            self._lose()
            return None
        self.missing = False
        return self._list_of(found)

    def _list_of(self, resource: Resource) -> str:
        within = f"/namespaces/{self._namespace}" if resource.namespaced else ""
        return f"{self.name.path}{within}/{resource.name}"

    async def _follow(self, path: str) -> None:
        """Follow the list at ``path``. Returns when the kind is not served any more."""
        self._follower = Follower(
            self._client, Kind(path, self._type), self._listener,
            random=self._random, clock=self._clock, page=self._page, ends_on=(_NOT_FOUND,),
        )  # fmt: skip
        try:
            await self._follower.run()
        except Refused:
            self._lose()
        finally:
            self._follower = None

    def _lose(self) -> None:
        """Note that the kind is missing, which deletes its objects."""
        if not self.missing:
            self.missing = True
            log.log(self._level, "the API server has no %s; installed later, it is used within a minute", self.name)
            for _ in self._listener.listed([]):
                pass
