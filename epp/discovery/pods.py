"""The endpoints of a pod: one for each port that its pool serves, and whether they may take requests.

An endpoint is (the pod's UID, the start of the container that has the port, the port's position). What the picker
keeps of an address belongs to that endpoint: another pod at the address, or a container that started again in place,
has an empty cache. Source: the Go picker's pod reconciler, which keeps the old index in both cases.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from epp.kube.objects import Condition, Pod
from epp.pool.pool import Endpoint

ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations that limit a pod to some of its pool's ports; the first one that is there counts."""
_ENDED = ("Succeeded", "Failed")


class PodEndpoint(NamedTuple):
    """One port of one pod, whose ``endpoint.identity`` is the pod, the start of its container, and the rank."""

    pod: str
    """The pod's UID."""
    created: str
    """When the pod was made, as the API server writes it: of two pods with one address the younger has it."""
    ready: bool
    """Whether the pod may take requests now."""
    endpoint: Endpoint


def endpoints_of(pod: Pod, ports: Sequence[int]) -> tuple[PodEndpoint, ...]:
    """Return the endpoints of ``pod``, whose pool serves ``ports``, in the order of ranks.

    Empty while the pod has no IP address, once it has ended, and from the moment on at which it is deleted. Readiness
    gates count, since the condition ``Ready`` contains them.
    """
    meta, status = pod.metadata, pod.status
    host = _host(status.pod_ip)
    if host is None or meta.deletion_timestamp or status.phase in _ENDED:
        return ()
    ready = _is_ready(status.conditions or ())
    active = active_ports(pod, ports)
    labels, name, uid = meta.labels or {}, f"{meta.namespace}/{meta.name}-rank-", meta.uid
    found = list[PodEndpoint]()
    for rank, port in enumerate(ports):
        if port in active:
            identity = f"{uid} {container_start(pod, port) or '?'} {rank}"
            endpoint = Endpoint(f"{host}:{port}", f"{name}{rank}", labels, identity=identity)
            found.append(PodEndpoint(uid, meta.creation_timestamp, ready, endpoint))
    return tuple(found)


def _is_ready(conditions: Iterable[Condition]) -> bool:
    for condition in conditions:  # noqa: SIM110 - a generator costs more than the loop
        if condition.type == "Ready" and condition.status == "True":
            return True
    return False


def active_ports(pod: Pod, ports: Sequence[int]) -> Collection[int]:
    """Return which of ``ports`` the pod serves: all of them without an annotation, none with an empty one.

    An item of the annotation that is no number, or not among ``ports``, is ignored, as in the Go picker.
    """
    annotations = pod.metadata.annotations or {}
    for name in ACTIVE_PORTS:
        if (text := annotations.get(name)) is not None:
            items = [item.strip() for item in text.split(",")]
            wanted = {int(item) for item in items if item.isascii() and item.isdigit() and len(item) <= 5}
            return frozenset(wanted.intersection(ports))
    return ports


def container_start(pod: Pod, port: int) -> str | None:
    """Return when the container that declares ``port`` began to run: the only container where none declares it.

    None if that cannot be said; an engine that started again is then found by its metrics page.
    """
    containers, declaring = pod.spec.containers, list[str]()
    for container in (*containers, *(pod.spec.init_containers or ())):  # sidecars are among the latter
        for declared in container.ports or ():
            if declared.container_port == port:
                declaring.append(container.name)
                break
    if not declaring and len(containers) == 1:
        declaring = [containers[0].name]
    if len(declaring) != 1:
        return None
    status = pod.status
    for reported in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        if reported.name == declaring[0] and reported.state is not None and reported.state.running is not None:
            return reported.state.running.started_at
    return None


def _host(text: str) -> str | None:
    """Return the IP address ``text`` as a host of ``host:port``; None if it is not one, or names an interface."""
    try:
        socket.inet_pton(socket.AF_INET, text)  # a tenth of the time that the next one takes
    except (OSError, ValueError):  # ValueError: a null byte
        pass
    else:
        return text
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if address.version == 4 or address.scope_id else f"[{address}]"
