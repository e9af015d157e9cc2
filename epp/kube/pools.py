"""InferencePools as the API server writes them, in both groups that have the kind; other fields are skipped.

Source: the CRDs of the Gateway API Inference Extension, v1.2.0 to v1.6.0.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from epp.kube.objects import Metadata

__all__ = ["OldPoolObject", "PoolObject"]


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object."""


class PortNumber(_Object, frozen=True):
    """A port as an object of its own."""

    number: int = 0


class PoolSelector(_Object, frozen=True):
    """Which pods belong to a pool: those with all of these labels."""

    match_labels: Mapping[str, str] = {}


class PickerRef(_Object, frozen=True):
    """The Service that gateways ask where a request goes."""

    kind: str = "Service"
    name: str = ""
    port: PortNumber | None = None


class PoolSpec(_Object, frozen=True):
    """The desired state of a pool of the group ``inference.networking.k8s.io/v1``."""

    selector: PoolSelector = PoolSelector()
    target_ports: tuple[PortNumber, ...] = ()
    app_protocol: str | None = None
    """Absent in a pool of a CRD before v1.4.0."""
    endpoint_picker_ref: PickerRef | None = None


class PoolObject(_Object, frozen=True):
    """An InferencePool of the group ``inference.networking.k8s.io/v1``."""

    metadata: Metadata = Metadata()
    spec: PoolSpec = PoolSpec()


class OldPickerRef(_Object, frozen=True):
    """The Service that gateways ask, as the older group has it."""

    kind: str = "Service"
    name: str = ""
    port_number: int | None = None


class OldPoolSpec(_Object, frozen=True):
    """The desired state of a pool of the group ``inference.networking.x-k8s.io/v1alpha2``."""

    selector: Mapping[str, str] = {}
    target_port_number: int = 0
    extension_ref: OldPickerRef | None = None


class OldPoolObject(_Object, frozen=True):
    """An InferencePool of the group ``inference.networking.x-k8s.io/v1alpha2``."""

    metadata: Metadata = Metadata()
    spec: OldPoolSpec = OldPoolSpec()
