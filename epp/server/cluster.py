"""What a running picker does with the API server of its cluster: one identity, one client, and the parts that use it.

A part is a feature that reads or writes objects: an object with the methods of ``Part``, made from ``cluster.client``
and started and stopped with the others. To add one:

1. its file in the room that it belongs to (``epp/discovery/``, ``epp/kube/``), with a class that has the methods of
   ``Part``;
2. its options as fields of ``ClusterOptions`` in ``epp/server/settings.py``, and its flags in
   ``epp/server/kube_flags.py``;
3. one line in ``_add_parts``, and where it makes the API server needed, in ``_is_needed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar

from epp.discovery.base import Discovery
from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PoolOptions, owner_of
from epp.discovery.pool_discovery import PoolDiscovery
from epp.discovery.pool_keeper import PoolKeeper
from epp.errors import ConfigError
from epp.kube import rights
from epp.kube.access import HOST, Access
from epp.kube.client import Client
from epp.kube.election.elector import Elector
from epp.kube.election.lease import lease_name
from epp.kube.groups import VERSIONS
from epp.kube.kubeconfig.identity import NoApiServer, open_access
from epp.kube.own_rights import OwnRights
from epp.kube.readers import Readers
from epp.kube.rights import Need
from epp.metrics.gauges import Reading
from epp.resources.custom_resources import CustomResources
from epp.resources.notifications import Notifications
from epp.resources.written import PoolName
from epp.server.core import Core
from epp.server.settings import ClusterOptions, Settings

T = TypeVar("T", bound="Part")


class Part(Protocol):
    """One feature that needs the API server. Owner: the event loop."""

    @property
    def trouble(self) -> str | None:
        """What it cannot do now, and why, in one sentence for ``/readyz``; None while all is well."""

    async def start(self) -> None:
        """Begin. Returns without waiting for the API server, which may be away.

        Raises: ConfigError for what can never succeed.
        """

    async def stop(self) -> None:
        """End, with everything that ``start`` began."""

    def readings(self) -> Iterable[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""


class Cluster:
    """The client and the parts, which are started in the order in which they were added. Owner: the event loop."""

    def __init__(self, access: Access, options: ClusterOptions, *, in_pod: bool = False) -> None:
        self.client = Client(access)
        self.options = options
        self.in_pod = in_pod
        """Whether the picker runs in a pod, so that every pod can reach its ports, whichever API server it uses."""
        self.namespace = options.namespace or access.namespace or "default"
        """Of the pool, its pods, and all other objects that the picker reads."""
        self.own_namespace = access.namespace or self.namespace
        """Of the picker's own pod, and of the pods of other pickers of its pool."""
        self.endpoints: Discovery | None = None
        """The part that lists the endpoints; None where they come from elsewhere."""
        self.readers: Readers | None = None
        """The part that decides who may read the metrics; None where everybody may."""
        self.elector: Elector | None = None
        """The part that elects one of several pickers; None without an election."""
        self._parts: list[Part] = []
        self._closing = AsyncExitStack()

    def add(self, part: T) -> T:
        """Return ``part``, which is started with the others."""
        self._parts.append(part)
        return part

    @property
    def troubles(self) -> tuple[str, ...]:
        """What parts cannot do now, except for the list of endpoints, of which ``endpoints`` has the trouble."""
        return tuple(part.trouble for part in self._parts if part is not self.endpoints and part.trouble is not None)

    async def start(self) -> None:
        """Open the client and start every part. Raises: ConfigError, and nothing is left open then."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client)
            for part in self._parts:
                await part.start()
                stack.push_async_callback(part.stop)
            self._closing = stack.pop_all()

    async def stop(self) -> None:
        """Stop the parts, the last one first, and close the client."""
        await self._closing.aclose()

    def drain(self) -> None:
        """Let another picker be elected, from now on."""
        if self.elector is not None:
            self.elector.end()

    @property
    def elected(self) -> bool:
        """Whether requests should be sent to this one of several pickers."""
        return self.elector is None or self.elector.serves

    @property
    def role(self) -> str:
        """What this picker is in an election, in one sentence; empty without an election."""
        return self.elector.role if self.elector is not None else ""

    def readings(self) -> Iterator[Reading]:
        """Yield the readings of every part, and of the client."""
        for part in self._parts:
            yield from part.readings()
        yield from self.client.unreadable.readings()


async def open_cluster(
    settings: Settings, core: Core, environ: Mapping[str, str], stack: AsyncExitStack, able: Callable[[], bool]
) -> Cluster | None:
    """Return the cluster with its parts started, which ``stack`` stops; None where nothing needs an API server.

    ``able`` is whether the picker can serve requests, which it must before it takes a Lease.
    Raises: ConfigError where there is no API server, or the credentials for it cannot be used.
    """
    if not _is_needed(settings, core):
        return None
    access = await _access(settings, core, environ)
    cluster = Cluster(access, settings.cluster, in_pod=bool(environ.get(HOST)))
    _add_parts(cluster, settings, core, able)
    cluster.add(OwnRights(cluster.client, tuple(_needs(cluster))))
    await cluster.start()
    stack.push_async_callback(cluster.stop)
    core.telemetry.gauge_source(cluster.readings)
    return cluster


async def _access(settings: Settings, core: Core, environ: Mapping[str, str]) -> Access:
    try:
        return await open_access(settings.cluster.kubeconfig, environ)
    except ConfigError as error:
        if _lists_endpoints(settings, core):
            if isinstance(error, NoApiServer):
                raise ConfigError(f"{error}; without a cluster pass --endpoint") from error
            raise
        what = "--metrics-endpoint-auth=true" if settings.cluster.metrics_auth else "--ha-enable-leader-election"
        if core.plan.notifications:
            what = f"{core.plan.notifications[0].path}: a k8s-notification-source"
        raise ConfigError(f"{what} needs an API server: {error}") from error


def _is_needed(settings: Settings, core: Core) -> bool:
    options = settings.cluster
    asked = options.metrics_auth is True or options.election is not None or core.plan.notifications
    return _lists_endpoints(settings, core) or bool(asked)


def _reviews_readers(cluster: Cluster, settings: Settings, core: Core) -> bool:
    """Whether the API server decides who may read the metrics."""
    if settings.cluster.metrics_auth is None:
        return _lists_endpoints(settings, core) and cluster.in_pod
    return settings.cluster.metrics_auth


def _needs(cluster: Cluster) -> Iterator[Need]:
    """Yield the rights that the parts need."""
    if cluster.endpoints is not None:
        yield rights.pods(cluster.namespace)
        if (pool := cluster.options.pool) is not None:
            yield rights.inference_pool({group: VERSIONS[group] for group in pool.groups}, cluster.namespace)
            yield from rights.custom_resources(cluster.namespace)
    if cluster.elector is not None:
        yield rights.leases(cluster.namespace, cluster.own_namespace)
    if cluster.readers is not None:
        yield rights.reviews()


def _lists_endpoints(settings: Settings, core: Core) -> bool:
    """Whether the endpoints come from the cluster: every other source that is named comes first."""
    elsewhere = settings.endpoints or settings.endpoints_file is not None or core.plan.discovery is not None
    return settings.cluster.has_endpoints and not elsewhere


def _add_parts(cluster: Cluster, settings: Settings, core: Core, able: Callable[[], bool]) -> None:
    options = settings.cluster
    if _lists_endpoints(settings, core):
        cluster.endpoints = cluster.add(_endpoints(cluster, core))
        if options.pool is not None:
            cluster.add(_custom_resources(cluster, core, options.pool))
    if core.plan.notifications:
        cluster.add(Notifications(cluster.client, core.plan.notifications, namespace=cluster.namespace))
    if _reviews_readers(cluster, settings, core):
        cluster.readers = cluster.add(Readers(cluster.client, time.monotonic))
    if options.election is not None:
        cluster.elector = cluster.add(
            Elector(
                cluster.client, namespace=cluster.namespace, name=lease_name(cluster.namespace, settings.pool_name),
                term=options.election, able=able, pod=options.own_pod,
                pod_namespace=cluster.own_namespace,
            )
        )  # fmt: skip


def _endpoints(cluster: Cluster, core: Core) -> PodDiscovery | PoolDiscovery:
    options = cluster.options
    keeper = PoolKeeper(core.pool, keep_s=options.keep_unready_s)
    pods = PodDiscovery(cluster.client, keeper, namespace=cluster.namespace, selected=options.pods)
    if options.pool is None:
        return pods
    made_by = owner_of(options.own_pod)
    return PoolDiscovery(cluster.client, pods, options.pool, namespace=cluster.namespace, picker=made_by)


def _custom_resources(cluster: Cluster, core: Core, pool: PoolOptions) -> CustomResources:
    name = PoolName(pool.name, pool.groups)
    followed = CustomResources(cluster.client, core, namespace=cluster.namespace, pool=name)
    core.on_use.append(followed.configure)
    return followed
