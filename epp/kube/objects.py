"""Kubernetes objects, as far as a picker reads them; other fields are skipped while decoding.

Times stay text: the API server writes all of them in UTC with a length that is always the same, so that text is
ordered as the times are, and one time in an odd form cannot spoil a list.

Source: the OpenAPI schema of Kubernetes 1.35, and the CRDs of the Gateway API Inference Extension v1.2.0 to v1.6.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

__all__ = [
    "AnyObject",
    "Condition",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStatus",
    "Decoder",
    "Decodes",
    "ListMeta",
    "ListOf",
    "Listener",
    "Metadata",
    "Object",
    "Plain",
    "Pod",
    "PodSpec",
    "PodStatus",
    "Running",
    "Status",
    "StatusDetails",
    "WatchEvent",
    "names_its_fields",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Object(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of an object. ``Decoder`` gives a field that is left out or null its default.

    None refers to itself, so that the garbage collector need not walk the 40 parts of each pod of a list.
    """


class Metadata(_Object, frozen=True):
    """What every object has in ``metadata``."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    """When the object began to end; empty while it lives."""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class Object(Protocol):
    """What every object of the API has."""

    @property
    def metadata(self) -> Metadata:
        """Its name, and the version of its last change."""


class Listener(Protocol[T]):
    """The interface of the owner of the objects. Its methods run on the follower's event loop, never after ``run``."""

    def listed(self, objects: list[T]) -> Iterator[None]:
        """Replace all objects by ``objects``: every other one is gone.

        Yields after each small step, so that a long list stalls nothing else. No method is called until it has ended.
        """

    def changed(self, item: T) -> None:
        """Add ``item``, or replace the object of its name."""

    def removed(self, item: T) -> None:
        """Remove ``item``: it is deleted, or the label selector does not match it any more."""


class Condition(_Object, frozen=True):
    """One condition of a status. ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""


class Running(_Object, frozen=True):
    """The state of a container that runs."""

    started_at: str = ""


class ContainerState(_Object, frozen=True):
    """The state of a container; ``running`` is None in every other state."""

    running: Running | None = None


class ContainerStatus(_Object, frozen=True):
    """What the kubelet reports of one container."""

    name: str = ""
    state: ContainerState | None = None


class ContainerPort(_Object, frozen=True):
    """A port that a container declares."""

    container_port: int = 0


class Container(_Object, frozen=True):
    """A container as declared in the pod."""

    name: str = ""
    ports: tuple[ContainerPort, ...] | None = None


class PodSpec(_Object, frozen=True):
    """The desired state of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    """Sidecars are among them: init containers that are restarted for as long as the pod lives."""


class PodStatus(_Object, frozen=True):
    """What the kubelet reports of a pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    """The first address of a pod that has several."""
    host_ip: str = msgspec.field(default="", name="hostIP")
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(_Object, frozen=True):
    """A pod of the API group ``v1``."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ListMeta(_Object, frozen=True):
    """Where a list stands: its version, and where its next page begins (empty on the last page)."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListOf(_Object, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class StatusDetails(_Object, frozen=True):
    """More of a refusal; ``retry_after_seconds`` is 0 where the API does not name a wait."""

    retry_after_seconds: int = 0


class Status(_Object, frozen=True):
    """A refusal of the API, as the body of a response or as the object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. ``object`` is decoded by its type: an object, a bookmark's metadata, or a ``Status``."""

    type: str
    object: msgspec.Raw


class Decodes(Protocol[T_co]):
    """What turns the body of an answer into an object."""

    def decode(self, raw: bytes, /) -> T_co:
        """Return the object in ``raw``. Raises: msgspec.DecodeError."""


class Plain:
    """The base of types that are made of a whole JSON object, and not of the fields that they name."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """Make one of ``fields``. Raises: msgspec.ValidationError."""


def names_its_fields(kind: type[object]) -> bool:
    """Return whether a few named fields of an object are read, so that its JSON is decoded in one cheap pass.

    An object that is kept whole costs several times as much, and is decoded in a step of its own.
    """
    return not issubclass(kind, Plain)


class AnyObject(Plain):
    """One object of any kind; ``fields`` is the whole of it, as the API server writes it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """Raises: msgspec.ValidationError for metadata that is not as the API writes it."""
        self.fields = fields
        self.metadata = msgspec.convert(without_nulls(fields.get("metadata") or {}), Metadata)


class Decoder(Generic[T]):
    """Decodes JSON of one type. A field that is null has its default, like a field that is left out."""

    def __init__(self, kind: type[T]) -> None:
        self._typed = msgspec.json.Decoder(kind, dec_hook=_plain)

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Return the object in ``raw``. Raises: msgspec.DecodeError, for text that is not UTF-8 or too deep as well."""
        try:
            try:
                return self._typed.decode(raw)
            except msgspec.ValidationError:  # slower, and needed only where there is a null
                return self._typed.decode(msgspec.json.encode(without_nulls(msgspec.json.decode(raw))))
        except (RecursionError, UnicodeDecodeError) as error:
            raise msgspec.DecodeError(str(error)) from error


def without_nulls(value: Any) -> Any:
    """Return ``value`` without the fields and items that are null, at every depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def _plain(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Plain) and isinstance(value, dict):
        return kind(value)
    raise msgspec.ValidationError(f"{kind.__name__} is made of an object, not of {type(value).__name__}")
