"""An InferencePool of either group as one value, and which of several is used.

Both groups may be installed, and a picker may have the right to read one of them only. The newer group comes first; the
older one is used once it is certain that the newer one has no pool of the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from epp.discovery.options import MAX_PORTS, PodOptions
from epp.errors import ConfigError
from epp.kube.pools import OldPoolObject, PoolObject
from epp.kube.selector import checked


@dataclass(frozen=True, slots=True)
class InferencePool:
    """What a picker reads of a pool."""

    pods: PodOptions
    app_protocol: str | None = None
    """``http``, ``kubernetes.io/h2c``, or None under a CRD that does not know the field."""
    picker: str | None = None
    """The Service that gateways ask where a request goes; None without a reference, or for another kind."""


def from_pool(pool: PoolObject) -> InferencePool:
    """Return what ``pool`` means. Raises: ConfigError where it selects every pod, or no port."""
    spec, ref = pool.spec, pool.spec.endpoint_picker_ref
    ports = tuple(port.number for port in spec.target_ports)
    pods = PodOptions(selector=_selector(spec.selector.match_labels), ports=_ports(ports))
    return InferencePool(pods, spec.app_protocol, ref.name if ref is not None and ref.kind == "Service" else None)


def from_old_pool(pool: OldPoolObject) -> InferencePool:
    """Return what ``pool`` means. Raises: ConfigError where it selects every pod, or no port."""
    spec, ref = pool.spec, pool.spec.extension_ref
    pods = PodOptions(selector=_selector(spec.selector), ports=_ports((spec.target_port_number,)))
    return InferencePool(pods, None, ref.name if ref is not None and ref.kind == "Service" else None)


def _selector(labels: Mapping[str, str]) -> str:
    text = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    if not text:
        raise ConfigError("its selector is empty and would select every pod; write a label into it")
    try:
        return checked(text)
    except ConfigError as error:
        raise ConfigError(f"its selector cannot be used: {error}") from error


def _ports(ports: tuple[int, ...]) -> tuple[int, ...]:
    wrong = [port for port in ports if not 0 < port < 65536]
    if not ports or wrong or len(ports) > MAX_PORTS or len(set(ports)) < len(ports):
        listed = ", ".join(map(str, ports)) or "none"
        raise ConfigError(f"its ports are {listed}; write one to {MAX_PORTS} different ones, from 1 to 65535")
    return ports


class GroupState(NamedTuple):
    """What is known of a pool's name in one group."""

    group: str
    """With its version."""
    asked: bool
    """Whether it is known if the group has a pool of the name, or that the picker may not know."""
    pool: PoolObject | OldPoolObject | None
    """None where there is none, as far as is known."""
    refused: int = 0
    """The HTTP status with which the API server refused the last request: 404 if it does not know the group."""
    trouble: str | None = None
    """The error of the last request."""


def chosen(states: Sequence[GroupState]) -> GroupState | None:
    """Return the state whose pool is used: the first with a pool that is not being deleted; None for none.

    A later one is used only where each earlier one was asked.
    """
    for state in states:
        if _lives(state):
            return state
        if not state.asked:
            return None
    return None


def why_none(states: Sequence[GroupState], name: str) -> str:
    """Return a sentence for why there is no pool ``name`` in any of the groups."""
    if any(state.pool is not None and not _lives(state) for state in states):
        return f"{name} is being deleted"
    for state in states:
        if state.trouble is not None and state.refused not in (403, 404):
            return f"{name} cannot be read: {state.trouble}"
        if not state.asked:
            return f"{name} is being read"
    if readable := [state.group for state in states if state.refused not in (403, 404)]:
        return f"{name} does not exist in {' and '.join(readable)}"
    if forbidden := [state.trouble for state in states if state.refused == 403]:
        return f"{name} cannot be read: {forbidden[0]}"
    groups = " or ".join(state.group for state in states)
    return f"the API server knows no InferencePool of {groups}: its definition is not installed"


def _lives(state: GroupState) -> bool:
    return state.pool is not None and not state.pool.metadata.deletion_timestamp
