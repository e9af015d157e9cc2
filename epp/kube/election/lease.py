"""The Lease by which pickers agree on a leader, as ``client-go`` reads and writes it.

A Lease may be written by hand, so each field is read whatever its type is: what makes no sense counts as absent.

Source: ``tools/leaderelection`` of k8s.io/client-go 0.35; ``coordination.k8s.io/v1`` in the API's OpenAPI schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

import msgspec

from epp.kube.objects import Metadata

GROUP = "coordination.k8s.io/v1"
MAX_TRANSITIONS = 2**31 - 1
"""The largest count that the API takes: ``leaseTransitions`` has 32 bits."""
RELEASED_S = 1
"""The duration that a released Lease states, since the API refuses 0. Source: client-go's ``release``."""
_POD = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Lease's ``spec`` that an election uses, of any type."""

    holder_identity: Any = None
    lease_duration_seconds: Any = None
    lease_transitions: Any = None
    acquire_time: Any = None
    renew_time: Any = None


class LeaseObject(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease of the API group ``coordination.k8s.io/v1``."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class Record:
    """The statement of a Lease: who leads, and for how long without a renewal."""

    holder: str = ""
    """The identity of the leader; empty while there is none."""
    duration_s: int | None = None
    """How long the Lease counts after each renewal; None where it states nothing that makes sense."""
    transitions: int = 0
    """How often the holder changed."""
    acquired: str = ""
    """When the holder became the leader, as text by the holder's clock; empty where that is not stated."""
    renewed: str = ""
    """When the holder last renewed it, likewise. It is compared for equality only, since clocks differ."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease at one version."""

    version: str
    """The API server's ``resourceVersion``."""
    record: Record

    @property
    def number(self) -> int | None:
        """The version as a number, which orders versions; None where the API server numbers otherwise."""
        return int(self.version) if self.version.isascii() and self.version.isdigit() else None


def lease_of(item: LeaseObject) -> Lease:
    """Return the Lease that ``item`` is."""
    spec = item.spec
    holder, duration, transitions = spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions
    record = Record(
        holder=holder if isinstance(holder, str) else "",
        duration_s=duration if _is_count(duration) and duration > 0 else None,
        transitions=min(transitions, MAX_TRANSITIONS) if _is_count(transitions) and transitions >= 0 else 0,
        acquired=spec.acquire_time if isinstance(spec.acquire_time, str) else "",
        renewed=spec.renew_time if isinstance(spec.renew_time, str) else "",
    )
    return Lease(item.metadata.resource_version, record)


def spec_of(record: Record) -> dict[str, Any]:
    """Return ``record`` as the ``spec`` of a Lease; fields that elections do not use stay as they are in a patch."""
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }


def taken(before: Record | None, holder: str, duration_s: float, at: str) -> Record:
    """Return the record of a new ``holder`` after ``before``, which is None if there was no Lease."""
    transitions = 0 if before is None else min(before.transitions + 1, MAX_TRANSITIONS)
    return Record(holder, math.ceil(duration_s), transitions, at, at)  # the API takes whole seconds


def renewed(record: Record, holder: str, duration_s: float, at: str) -> Record:
    """Return ``record`` renewed by its ``holder``, who stays so where it was emptied by hand."""
    return Record(holder, math.ceil(duration_s), record.transitions, record.acquired or at, at)


def released(record: Record, at: str) -> Record:
    """Return ``record`` given up by its holder."""
    return Record("", RELEASED_S, record.transitions, at, at)


def written(time_s: float) -> str:
    """Return the Unix time ``time_s`` as the API writes it, in UTC with microseconds."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pod_of(holder: str) -> str:
    """Return the name of the pod that ``holder`` runs in, by ``<pod>_<unique>``; empty if it has another form."""
    pod = holder.rpartition("_")[0]
    return pod if _POD.fullmatch(pod) else ""


def origin(pod: str, namespace: str) -> str:
    """Return how the identities of all pickers begin that run in this pod, one after another."""
    return f"{pod}_{namespace}."


def namespace_of(holder: str) -> str:
    """Return the namespace of the pod that ``holder`` runs in; empty if it does not state one, as client-go's do."""
    namespace, dot, _ = holder.rpartition("_")[2].partition(".")
    return namespace if dot else ""


def lease_name(namespace: str, pool: str) -> str:
    """Return the name of a pool's Lease, which is the Go picker's."""
    return f"epp-{namespace}-{pool}.llm-d.ai"


def leases_path(namespace: str) -> str:
    """Return the path of a namespace's Leases."""
    return f"/apis/{GROUP}/namespaces/{namespace}/leases"


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
