"""Kubernetes objects as far as the rules read them; other fields are skipped, so that newer versions do no harm.

Source: the OpenAPI schema of Kubernetes 1.35.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from epp.kube.objects import Metadata


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object."""


class Condition(_Object, frozen=True):
    """One condition of a status, with its reason and the controller's own words."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class Owner(_Object, frozen=True):
    """What made an object."""

    kind: str = ""
    name: str = ""


class OwnedMetadata(Metadata, frozen=True, rename="camel"):
    """Metadata with what made the object."""

    owner_references: tuple[Owner, ...] = ()


class Port(_Object, frozen=True):
    """A port that a container declares."""

    container_port: int = 0
    name: str = ""


class Variable(_Object, frozen=True):
    """A variable of a container's environment."""

    name: str = ""
    value: str = ""


class Limits(_Object, frozen=True):
    """What a container may use, by resource, as Kubernetes writes quantities."""

    limits: Mapping[str, str | int | float] = {}


class GrpcProbe(_Object, frozen=True):
    """A gRPC health check and the name that it asks for."""

    port: int = 0
    service: str = ""


class Probe(_Object, frozen=True):
    """A probe; ``grpc`` is None for every other kind."""

    grpc: GrpcProbe | None = None


class Mount(_Object, frozen=True):
    """Where a volume is in a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class Container(_Object, frozen=True):
    """A container as declared."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    ports: tuple[Port, ...] = ()
    resources: Limits = Limits()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    volume_mounts: tuple[Mount, ...] = ()


class NamedMap(_Object, frozen=True):
    """The ConfigMap that a volume is."""

    name: str = ""


class Volume(_Object, frozen=True):
    """A volume; ``config_map`` is None for every other kind."""

    name: str = ""
    config_map: NamedMap | None = None


class Gate(_Object, frozen=True):
    """A condition beside the kubelet's own that a pod needs to be ready."""

    condition_type: str = ""


class PodSpec(_Object, frozen=True):
    """What a pod is meant to be."""

    service_account_name: str = "default"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[Gate, ...] = ()


class Waiting(_Object, frozen=True):
    """Why a container does not run."""

    reason: str = ""
    message: str = ""


class State(_Object, frozen=True):
    """The state of a container; ``waiting`` is None in every other state."""

    waiting: Waiting | None = None


class ContainerStatus(_Object, frozen=True):
    """What the kubelet reports of one container."""

    name: str = ""
    restart_count: int = 0
    state: State = State()


class Address(_Object, frozen=True):
    """An address of a pod, which has one of each address family."""

    ip: str = ""


class PodStatus(_Object, frozen=True):
    """What the kubelet reports of a pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[Address, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Object, frozen=True):
    """A pod of the API group ``v1``."""

    metadata: OwnedMetadata = OwnedMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Labels(_Object, frozen=True):
    """A selector by labels."""

    match_labels: Mapping[str, str] = {}


class Template(_Object, frozen=True):
    """What the pods of a Deployment are made from."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class DeploymentSpec(_Object, frozen=True):
    """What a Deployment is meant to be."""

    replicas: int = 1
    selector: Labels = Labels()
    template: Template = Template()


class Deployment(_Object, frozen=True):
    """A Deployment of the API group ``apps/v1``."""

    metadata: Metadata = Metadata()
    spec: DeploymentSpec = DeploymentSpec()


class ServicePort(_Object, frozen=True):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0
    app_protocol: str = ""


class ServiceSpec(_Object, frozen=True):
    """What a Service is meant to be."""

    selector: Mapping[str, str] = {}
    ports: tuple[ServicePort, ...] = ()


class Service(_Object, frozen=True):
    """A Service of the API group ``v1``."""

    metadata: Metadata = Metadata()
    spec: ServiceSpec = ServiceSpec()


class Ready(_Object, frozen=True):
    """The conditions of an endpoint of a slice."""

    ready: bool = True


class SliceEndpoint(_Object, frozen=True):
    """An endpoint of a slice."""

    addresses: tuple[str, ...] = ()
    conditions: Ready = Ready()


class EndpointSlice(_Object, frozen=True):
    """An EndpointSlice of the API group ``discovery.k8s.io/v1``."""

    metadata: Metadata = Metadata()
    endpoints: tuple[SliceEndpoint, ...] = ()


class ConfigMap(_Object, frozen=True):
    """A ConfigMap of the API group ``v1``."""

    metadata: Metadata = Metadata()
    data: Mapping[str, str] = {}
