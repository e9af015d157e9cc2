"""Objects that say how requests reach a pool: routes, gateways, Istio's rules, and what their controllers report.

Source: Gateway API 1.5.1, Istio's networking API 1.31, and the CRDs of the Gateway API Inference Extension v1.2.0 to
v1.6.0. Other fields are skipped.
"""

from __future__ import annotations

import msgspec

from epp.doctor.objects import Condition
from epp.kube.objects import Metadata
from epp.kube.pools import OldPoolObject, PoolObject


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object."""


class Reference(_Object, frozen=True):
    """A reference to another object; of an absent group, kind or namespace the field's place decides."""

    group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str = ""
    port: int | None = None


class Parent(_Object, frozen=True):
    """What one controller says of an object, on behalf of one Gateway."""

    parent_ref: Reference = Reference()
    controller_name: str = ""
    conditions: tuple[Condition, ...] = ()


class Timeouts(_Object, frozen=True):
    """How long a request and each try of it may take; empty for the gateway's own limits."""

    request: str = ""
    backend_request: str = ""


class RouteRule(_Object, frozen=True):
    """One rule of a route."""

    backend_refs: tuple[Reference, ...] = ()
    timeouts: Timeouts = Timeouts()


class RouteSpec(_Object, frozen=True):
    """What a route is meant to be."""

    parent_refs: tuple[Reference, ...] = ()
    rules: tuple[RouteRule, ...] = ()


class RouteStatus(_Object, frozen=True):
    """What controllers say of a route."""

    parents: tuple[Parent, ...] = ()


class Route(_Object, frozen=True):
    """An HTTPRoute of the API group ``gateway.networking.k8s.io/v1``."""

    metadata: Metadata = Metadata()
    spec: RouteSpec = RouteSpec()
    status: RouteStatus = RouteStatus()


class ConditionsOnly(_Object, frozen=True):
    """A status of conditions."""

    conditions: tuple[Condition, ...] = ()


class Gateway(_Object, frozen=True):
    """A Gateway of the API group ``gateway.networking.k8s.io/v1``."""

    metadata: Metadata = Metadata()
    status: ConditionsOnly = ConditionsOnly()


class Tls(_Object, frozen=True):
    """Whether and how a DestinationRule encrypts."""

    mode: str = ""


class HttpPool(_Object, frozen=True):
    """How many requests Istio lets through at once."""

    http2_max_requests: int = msgspec.field(default=0, name="http2MaxRequests")
    http1_max_pending_requests: int = msgspec.field(default=0, name="http1MaxPendingRequests")


class TcpPool(_Object, frozen=True):
    """How many connections Istio opens."""

    max_connections: int = 0


class ConnectionPool(_Object, frozen=True):
    """The circuit breakers of a DestinationRule; 0 for Istio's default."""

    http: HttpPool = HttpPool()
    tcp: TcpPool = TcpPool()


class PolicyPort(_Object, frozen=True):
    """The port that settings are for."""

    number: int = 0


class PortSettings(_Object, frozen=True):
    """How Istio connects to one port of a host, which comes before what is said of the host."""

    port: PolicyPort = PolicyPort()
    tls: Tls | None = None


class TrafficPolicy(_Object, frozen=True):
    """How Istio connects to a host."""

    tls: Tls | None = None
    connection_pool: ConnectionPool = ConnectionPool()
    port_level_settings: tuple[PortSettings, ...] = ()


class DestinationRuleSpec(_Object, frozen=True):
    """What a DestinationRule is meant to be."""

    host: str = ""
    traffic_policy: TrafficPolicy | None = None


class DestinationRule(_Object, frozen=True):
    """A DestinationRule of the API group ``networking.istio.io``."""

    metadata: Metadata = Metadata()
    spec: DestinationRuleSpec = DestinationRuleSpec()


class PoolStatus(_Object, frozen=True):
    """What controllers say of a pool; the older group has the singular."""

    parents: tuple[Parent, ...] = ()
    parent: tuple[Parent, ...] = ()


class Pool(PoolObject, frozen=True, rename="camel"):
    """An InferencePool of the newer group with its status."""

    status: PoolStatus = PoolStatus()


class OldPool(OldPoolObject, frozen=True, rename="camel"):
    """An InferencePool of the older group with its status."""

    status: PoolStatus = PoolStatus()


class GroupVersion(_Object, frozen=True):
    """A group with a version, such as ``apps/v1``."""

    group_version: str = ""


class Group(_Object, frozen=True):
    """An API group that is served."""

    name: str = ""
    versions: tuple[GroupVersion, ...] = ()


class Groups(_Object, frozen=True):
    """The API groups that are served."""

    groups: tuple[Group, ...] = ()
