"""The options of discovery as typed values, which the flags of a command set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from epp.errors import ConfigError
from epp.flags.arguments import Given
from epp.kube.groups import GROUP, OLD_GROUP
from epp.kube.selector import checked

KEEP_S = 120.0
"""How long an endpoint is kept that is not ready, or whose pool is gone. A guess: an operator who has deleted a pool by
mistake applies it again within a minute or two."""
MAX_PORTS = 8
"""The most ports of a pod. Source: InferencePool's ``targetPorts``."""
POD_NAME = "POD_NAME"
"""The variable in which a manifest gives a pod its own name."""
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_OF_DEPLOYMENT = re.compile(rf"(?P<owner>.+)-{_SAFE}{{1,10}}-{_SAFE}{{5}}")  # the template's hash, the pod's suffix
_OF_STATEFUL_SET = re.compile(r"(?P<owner>.+)-[0-9]+")  # the ordinal
"""How pods are named by what makes them. Source: SafeEncodeString in k8s.io/apimachinery 0.35 (the alphabet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Which pods of a namespace are endpoints."""

    selector: str
    """A label selector in the grammar of Kubernetes, never empty."""
    ports: tuple[int, ...]
    """The ports that each pod serves, by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Which InferencePool of a namespace has the endpoints."""

    name: str
    groups: tuple[str, ...]
    """The API groups in which it is looked for; the first that has it counts."""


def pod_options(given: Given) -> PodOptions | None:
    """Return which pods the flags select; None if the endpoints do not come from pods.

    Raises: ConfigError for one of the two flags without the other, and for a second source of endpoints.
    """
    selector, ports = given.get("endpoint-selector", ""), given.get("endpoint-target-ports") or ()
    if not selector and not ports:
        return None
    for other in ("endpoint", "pool-name"):
        if selector and given.get(other):
            raise ConfigError(
                f"--endpoint-selector and --{other} each say where the endpoints are; leave out one of them"
            )
    if not selector and "endpoint-selector" in given:
        raise ConfigError("--endpoint-selector is empty and would select every pod; write a label, such as app=vllm")
    if not selector:
        raise ConfigError("--endpoint-target-ports has no meaning without --endpoint-selector; give both, or neither")
    if not ports:
        raise ConfigError("--endpoint-selector needs --endpoint-target-ports: the ports of the pods, such as 8000")
    if len(ports) > MAX_PORTS:
        raise ConfigError(f"--endpoint-target-ports has {len(ports)} ports, and a pod has at most {MAX_PORTS}")
    if twice := sorted({port for port in ports if ports.count(port) > 1}):
        raise ConfigError(f"--endpoint-target-ports has {twice[0]} twice; name each port once")
    try:
        selector = checked(selector)
    except ConfigError as error:
        raise ConfigError(f"--endpoint-selector: {error}") from error
    return PodOptions(selector=selector, ports=tuple(ports))


def namespace_of(given: Given, environment: Mapping[str, str]) -> str | None:
    """Return the namespace that a flag or the environment names; None for that of the picker's identity.

    Raises: ConfigError for what cannot be the name of a namespace.
    """
    namespace = given.get("pool-namespace") or environment.get("NAMESPACE") or None
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(
            f"--pool-namespace: {namespace!r} is not the name of a namespace: at most 63 of a-z, 0-9 and '-'; "
            "without the flag it is the variable NAMESPACE"
        )
    return namespace


def pool_options(given: Given) -> PoolOptions | None:
    """Return the InferencePool that the flags name; None if the endpoints come from elsewhere.

    Raises: ConfigError for a group that has no InferencePools.
    """
    name = given.get("pool-name") or ""
    if not name or given.get("endpoint") or given.get("endpoint-selector"):
        return None
    group = given.get("pool-group") or None
    if group not in (None, GROUP, OLD_GROUP):
        raise ConfigError(f"--pool-group={group}: InferencePools are in {GROUP} and {OLD_GROUP}; leave it out for both")
    return PoolOptions(name=name, groups=(GROUP, OLD_GROUP) if group is None else (group,))


def owner_of(pod: str) -> str | None:
    """Return the name of what made the pod of this name; None for no name.

    A Deployment's, a StatefulSet's, or else the pod's own. Source: the Go picker, which knows Deployments only.
    """
    for pattern in (_OF_DEPLOYMENT, _OF_STATEFUL_SET):
        if match := pattern.fullmatch(pod):
            return match["owner"]
    return pod or None
