"""Everything that the rules judge, as it was read at one moment: plain values, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from epp.doctor.finding import Unread
from epp.doctor.flags_written import Written, written
from epp.doctor.objects import ConfigMap, Container, Deployment, EndpointSlice, Pod, Service
from epp.doctor.objects_routing import DestinationRule, Gateway, Parent, Route
from epp.doctor.pages import EnginePage, PickerPage
from epp.doctor.shown import is_name, number
from epp.kube.rights import Right


@dataclass(frozen=True, slots=True)
class Pool:
    """An InferencePool of either group as one value."""

    name: str
    namespace: str
    group: str
    labels: Mapping[str, str]
    """The selector."""
    ports: tuple[int, ...]
    service: str | None = None
    """The Service of the picker; None without a reference, or for another kind."""
    service_port: int | None = None
    parents: tuple[Parent, ...] = ()

    def __str__(self) -> str:
        return f"InferencePool {self.namespace}/{self.name}"

    @property
    def resource(self) -> str:
        """Return how kubectl names the pool, with its group, since two groups have pools."""
        return f"inferencepool.{self.group}/{self.name}"

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the pool selects a pod of these labels; an empty selector selects none."""
        return bool(self.labels) and matches(self.labels, labels)


@dataclass(frozen=True, slots=True)
class Picker:
    """A Deployment of an endpoint picker."""

    deployment: Deployment
    container: Container
    written: Written

    def __str__(self) -> str:
        return f"Deployment {self.deployment.metadata.namespace}/{self.name}"

    @property
    def name(self) -> str:
        """Return the Deployment's name."""
        return self.deployment.metadata.name

    @property
    def account(self) -> str:
        """Return the name of the pods' service account, without its namespace."""
        return self.deployment.spec.template.spec.service_account_name

    @property
    def pool_name(self) -> str:
        """Return the name of the pool that it follows; empty where it selects pods itself."""
        return self.written.value("pool-name") or ""

    @property
    def is_tierwise(self) -> bool:
        """Return whether it is the picker of this project, and not another one with the same flags."""
        words = (*self.container.command, *self.container.args[:2])
        return "tierwise" in words or any(word.endswith("/tierwise") for word in words) or (
            self.container.image.split("@")[0].rpartition("/")[2].split(":")[0] == "tierwise"
        )  # fmt: skip

    @property
    def metrics_port(self) -> int:
        """Return the port of ``/readyz`` and ``/metrics``."""
        return number(self.written.value("metrics-port") or "") or 9090


@dataclass(frozen=True, slots=True)
class Lack:
    """Rights that a picker's account lacks for one feature."""

    account: str
    """The full name, such as ``system:serviceaccount:llm:epp``."""
    feature: str
    rights: tuple[Right, ...]
    without: str
    """What happens without them, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was read of one namespace."""

    namespace: str
    exists: bool = True
    """Whether there is such a namespace."""
    name: str = ""
    """The pool that is asked about; empty for all of the namespace."""
    served: frozenset[str] = frozenset()
    """The groups that the API server serves, with their versions, such as ``apps/v1``."""
    pool_groups: tuple[str, ...] = ()
    """The groups whose InferencePools are installed."""
    pools: tuple[Pool, ...] = ()
    pods: tuple[Pod, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    maps: Mapping[str, ConfigMap | None] = field(default_factory=dict)
    """The ConfigMaps that pickers mount, by name; None for one that does not exist."""
    routes: tuple[Route, ...] = ()
    gateways: Mapping[tuple[str, str], Gateway | None] = field(default_factory=dict)
    """The Gateways that routes name, by namespace and name; None for one that does not exist."""
    destination_rules: tuple[DestinationRule, ...] = ()
    lacks: tuple[Lack, ...] = ()
    picker_pages: Mapping[str, PickerPage] = field(default_factory=dict)
    """By the pod's name."""
    engine_pages: Mapping[str, EnginePage] = field(default_factory=dict)
    """By the pod's name and the port, such as ``qwen-0:8000``."""
    unread: tuple[Unread, ...] = ()
    counts: Mapping[str, str] = field(default_factory=dict)
    """How much was looked at, for the last line of the report."""

    def saw(self, *resources: str) -> bool:
        """Return whether all of these could be read, so that what is not here does not exist."""
        return not any(unread.what.split(".")[0] in resources for unread in self.unread)

    def pods_of(self, pool: Pool) -> list[Pod]:
        """Return the pods that a pool selects and that are not being deleted."""
        return [pod for pod in self.alive() if pool.selects(pod.metadata.labels)]

    def alive(self) -> Iterator[Pod]:
        """Yield the pods that are not being deleted and have not ended."""
        return (
            pod
            for pod in self.pods
            if not pod.metadata.deletion_timestamp and pod.status.phase not in ("Succeeded", "Failed")
        )

    def pickers(self) -> list[Picker]:
        """Return the pickers of the namespace: of the pool that is asked about, or all."""
        found = [picker for deployment in self.deployments for picker in _pickers(deployment)]
        return [picker for picker in found if self.name in ("", picker.pool_name)]

    def pods_of_picker(self, picker: Picker) -> list[Pod]:
        """Return the pods of a picker that are not being deleted."""
        spec = picker.deployment.spec
        labels = spec.selector.match_labels or spec.template.metadata.labels  # the latter for matchExpressions alone
        return [pod for pod in self.alive() if labels and matches(labels, pod.metadata.labels)]

    def asked_pools(self) -> list[Pool]:
        """Return the pool that is asked about, in each group that has it, or all pools."""
        return [pool for pool in self.pools if self.name in ("", pool.name)]

    def service(self, name: str) -> Service | None:
        """Return the Service of this name; None if there is none."""
        return next((service for service in self.services if service.metadata.name == name), None)

    def selected_by(self, service: Service) -> list[Pod]:
        """Return the pods that a Service selects; a Service without a selector selects none."""
        labels = service.spec.selector
        return [pod for pod in self.alive() if labels and matches(labels, pod.metadata.labels)]


def matches(selector: Mapping[str, str], labels: Mapping[str, str] | None) -> bool:
    """Return whether ``labels`` have all of ``selector``."""
    return all((labels or {}).get(name) == value for name, value in selector.items())


def is_ready(pod: Pod) -> bool:
    """Return whether the pod's condition Ready is True."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def of_pod(pod: Pod) -> str:
    """Return how findings name a pod."""
    return f"Pod {pod.metadata.namespace}/{pod.metadata.name}"


def _pickers(deployment: Deployment) -> Iterator[Picker]:
    for container in deployment.spec.template.spec.containers:
        flags = flags_of(container)
        if flags.value("pool-name") is not None or flags.value("endpoint-selector") is not None:
            yield Picker(deployment, container, flags)
            return


def flags_of(container: Container) -> Written:
    """Return the flags in a container's command and arguments."""
    return written((*container.command, *container.args))


def declared(pod: Pod) -> set[int]:
    """Return the ports that the containers of a pod declare; none where one declares nothing and may serve any."""
    if not all(container.ports for container in pod.spec.containers):
        return set()
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return {port.container_port for container in containers for port in container.ports}


def config_map_of(picker: Picker) -> tuple[str, str, bool] | None:
    """Return the ConfigMap, the key, and whether it is mounted by ``subPath``; None if it is no ConfigMap."""
    file = picker.written.value("config-file") or ""
    for mount in picker.container.volume_mounts:
        name = next(
            (
                volume.config_map.name
                for volume in picker.deployment.spec.template.spec.volumes
                if volume.name == mount.name and volume.config_map is not None
            ),
            "",
        )
        if not is_name(name):  # Kubernetes accepts any text there, and it would be a part of a path
            continue
        if mount.sub_path and file == mount.mount_path:
            return name, mount.sub_path, True
        folder = mount.mount_path.rstrip("/") + "/"
        if not mount.sub_path and file.startswith(folder):
            return name, file.removeprefix(folder), False
    return None
