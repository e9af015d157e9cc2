"""Reads everything that the rules judge from the API server: objects, rights, and pages of pods by its proxy.

Nothing is written: reviews of rights are questions, and the API server keeps none of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime

from epp.doctor.asking import Asking
from epp.doctor.finding import Unread
from epp.doctor.objects import ConfigMap, Deployment, EndpointSlice, Pod, Service
from epp.doctor.objects_routing import DestinationRule, Gateway, Groups, OldPool, Route
from epp.doctor.objects_routing import Pool as NewPool
from epp.doctor.pages_read import read_pages
from epp.doctor.shown import is_name
from epp.doctor.snapshot import Lack, Picker, Pool, Snapshot, config_map_of
from epp.errors import ConfigError
from epp.kube import rights
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused, Unreachable
from epp.kube.groups import GROUP, OLD_GROUP, VERSIONS
from epp.kube.objects import Decoder
from epp.kube.reviews import may_account
from epp.kube.rights import Need, Right

GATEWAY_API = "gateway.networking.k8s.io/v1"
ISTIO = ("networking.istio.io/v1", "networking.istio.io/v1beta1")
REVIEWS = "create subjectaccessreviews.authorization.k8s.io"


async def read(client: Client, namespace: str, name: str) -> Snapshot:
    """Return the snapshot of a namespace, or of the pool ``name`` in it.

    Raises: KubeError, ConfigError if the API server does not answer as one; what it refuses is in ``unread``.
    """
    ahead = await _ahead(client)
    served = await _served(client)
    asking = Asking(client, namespace)
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    slices_at = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    async with asyncio.TaskGroup() as group:
        pods = group.create_task(asking.listed(f"{core}/pods", "pods", Pod))
        services = group.create_task(asking.listed(f"{core}/services", "services", Service))
        deployments = group.create_task(asking.listed(f"{apps}/deployments", "deployments.apps", Deployment))
        slices = group.create_task(asking.listed(slices_at, "endpointslices.discovery.k8s.io", EndpointSlice))
        routes = group.create_task(_routes(asking, served))
        istio = group.create_task(_destination_rules(asking, served))
        found = group.create_task(_pools(asking, served))
    groups, pools = found.result()
    seen = Snapshot(
        namespace=namespace, exists=bool(pods.result() or pools) or await _exists(client, namespace), name=name,
        served=served, pool_groups=groups, pools=pools,
        pods=tuple(pods.result() or ()), deployments=tuple(deployments.result() or ()),
        services=tuple(services.result() or ()), slices=tuple(slices.result() or ()),
        routes=tuple(routes.result()), destination_rules=tuple(istio.result()),
    )  # fmt: skip
    for (of, resource), count in client.unreadable.counts.items():
        what = f"{resource}.{of}" if of else resource
        asking.unread[Unread(what, f"{count:,} of them are in a form that is not the API's, and are left out")] = None
    seen = replace(seen, unread=tuple(asking.unread))
    maps, gateways, lacks, pages = await asyncio.gather(
        _maps(asking, seen.pickers()), _gateways(asking, seen), _lacks(asking, seen), read_pages(asking, seen, ahead)
    )
    return replace(
        seen, maps=maps, gateways=gateways, lacks=lacks, picker_pages=pages.pickers, engine_pages=pages.engines,
        counts=pages.counts, unread=tuple(asking.unread),
    )  # fmt: skip


async def _ahead(client: Client) -> float | None:
    """Return by how many seconds the API server's clock is ahead of ours; None if it does not say."""
    try:
        date = (await client.page("/version")).date
    except Refused as error:
        if error.status == 403:  # some clusters keep their version to themselves
            return None
        raise
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return None


async def _served(client: Client) -> frozenset[str]:
    groups = (await client.get("/apis", Decoder(Groups))).groups
    if not groups:  # any JSON object would pass as a list without groups
        raise Unreachable(f"GET {client.access.server}/apis: the answer lists no API groups; is a proxy in between?")
    return frozenset(version.group_version for group in groups for version in group.versions)


async def _exists(client: Client, namespace: str) -> bool:
    """Return whether there is such a namespace, or whether that is not for this account to know."""
    try:
        await client.get(f"/api/v1/namespaces/{namespace}", Decoder(ConfigMap))
    except Refused as error:
        return error.status != 404
    except (KubeError, ConfigError):
        pass
    return True


async def _pools(asking: Asking, served: frozenset[str]) -> tuple[tuple[str, ...], tuple[Pool, ...]]:
    """Return the groups that have InferencePools, and all pools of the namespace."""
    groups, pools = list[str](), list[Pool]()
    for group, version in VERSIONS.items():
        if f"{group}/{version}" not in served:
            continue
        path = f"/apis/{group}/{version}/namespaces/{asking.namespace}/inferencepools"
        if group == OLD_GROUP:
            old = await asking.listed(path, f"inferencepools.{group}", OldPool)
            pools += map(_old, old or ())
            groups += [group] if old is not None else []
        else:
            new = await asking.listed(path, f"inferencepools.{group}", NewPool)
            pools += map(_new, new or ())
            groups += [group] if new is not None else []
    return tuple(groups), tuple(pools)


def _new(pool: NewPool) -> Pool:
    ref, meta = pool.spec.endpoint_picker_ref, pool.metadata
    of_service = ref is not None and ref.kind == "Service"
    return Pool(
        meta.name, meta.namespace, GROUP, pool.spec.selector.match_labels,
        tuple(port.number for port in pool.spec.target_ports),
        ref.name if ref is not None and of_service else None,
        ref.port.number if ref is not None and of_service and ref.port is not None else None,
        pool.status.parents,
    )  # fmt: skip


def _old(pool: OldPool) -> Pool:
    ref, meta = pool.spec.extension_ref, pool.metadata
    of_service = ref is not None and ref.kind == "Service"
    return Pool(
        meta.name, meta.namespace, OLD_GROUP, pool.spec.selector, (pool.spec.target_port_number,),
        ref.name if ref is not None and of_service else None,
        ref.port_number if ref is not None and of_service else None,
        pool.status.parent or pool.status.parents,
    )  # fmt: skip


async def _routes(asking: Asking, served: frozenset[str]) -> list[Route]:
    if GATEWAY_API not in served:
        return []
    path = f"/apis/{GATEWAY_API}/namespaces/{asking.namespace}/httproutes"
    return await asking.listed(path, "httproutes.gateway.networking.k8s.io", Route) or []


async def _destination_rules(asking: Asking, served: frozenset[str]) -> list[DestinationRule]:
    version = next((version for version in ISTIO if version in served), None)
    if version is None:
        return []
    path = f"/apis/{version}/namespaces/{asking.namespace}/destinationrules"
    return await asking.listed(path, "destinationrules.networking.istio.io", DestinationRule) or []


async def _gateways(asking: Asking, seen: Snapshot) -> dict[tuple[str, str], Gateway | None]:
    """Return the Gateways that routes to pools name; None for one that does not exist."""
    found: dict[tuple[str, str], Gateway | None] = {}
    for route in seen.routes:
        backends = [ref for rule in route.spec.rules for ref in rule.backend_refs if ref.kind == "InferencePool"]
        if not any(seen.name in ("", ref.name) for ref in backends):
            continue
        for ref in route.spec.parent_refs:
            key = (ref.namespace or route.metadata.namespace, ref.name)
            if ref.kind not in ("", "Gateway") or key in found or not (is_name(key[0]) and is_name(key[1])):
                continue
            path = f"/apis/{GATEWAY_API}/namespaces/{key[0]}/gateways/{key[1]}"
            try:
                found[key] = await asking.one(path, "gateways.gateway.networking.k8s.io", ref.name, Gateway)
            except KeyError:
                continue
    return found


async def _maps(asking: Asking, pickers: Iterable[Picker]) -> dict[str, ConfigMap | None]:
    """Return the ConfigMaps that pickers read, one by one: other ConfigMaps are not for us to read."""
    found: dict[str, ConfigMap | None] = {}
    for picker in pickers:
        mounted = config_map_of(picker)
        if mounted is None or mounted[0] in found:
            continue
        path = f"/api/v1/namespaces/{asking.namespace}/configmaps/{mounted[0]}"
        try:
            found[mounted[0]] = await asking.one(path, "configmaps", mounted[0], ConfigMap)
        except KeyError:
            continue
    return found


async def _lacks(asking: Asking, seen: Snapshot) -> tuple[Lack, ...]:
    """Return which rights the pickers' accounts lack, each account asked about once."""
    found: dict[Lack, None] = {}
    for picker in seen.pickers():
        account = f"system:serviceaccount:{seen.namespace}:{picker.account}"
        for need in _needs(picker, seen):
            try:
                lacking = await _lacking(asking.client, seen, picker, need)
            except (KubeError, ConfigError) as error:
                forbidden = isinstance(error, Refused) and error.status == 403
                why = f"this account may not {REVIEWS}" if forbidden else str(error)[:300]
                asking.unread[Unread(f"the rights of {account}", why, REVIEWS if forbidden else "")] = None
                break
            if lacking:
                found[Lack(account, need.feature, lacking, need.without)] = None
    return tuple(found)


async def _lacking(client: Client, seen: Snapshot, picker: Picker, need: Need) -> tuple[Right, ...]:
    first: tuple[Right, ...] = ()
    for one in (need, *need.instead):
        if one.version and one.version not in seen.served:
            continue
        asked = [await may_account(client, seen.namespace, picker.account, right) for right in one.rights]
        lacking = tuple(right for right, may in zip(one.rights, asked, strict=True) if not may)
        if not lacking:
            return ()
        first = first or lacking
    return first


def _needs(picker: Picker, seen: Snapshot) -> Iterator[Need]:
    """Yield what a picker with these flags needs, as ``epp.server.cluster`` has it."""
    flags, namespace = picker.written, seen.namespace
    if (of_pool := flags.value("pool-namespace") or "") and is_name(of_pool) and of_pool != "true":
        namespace = of_pool
    yield rights.pods(namespace)
    if not picker.is_tierwise:  # what further rights another picker needs is not known
        return
    if picker.pool_name:
        group = flags.value("pool-group")
        versions = {group: VERSIONS[group]} if group in VERSIONS else VERSIONS
        yield rights.inference_pool(versions, namespace)
        yield from rights.custom_resources(namespace)
    if flags.is_on("ha-enable-leader-election", False):
        yield rights.leases(namespace, seen.namespace)
    if flags.is_on("metrics-endpoint-auth", True):
        yield rights.reviews()
