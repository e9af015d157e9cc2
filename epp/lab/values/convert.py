"""One tree of values as the other, and what could not be carried over.

A key of both trees moves (``counterparts.py``). The rest is here: keys whose value is written in another way, and keys
that the other tree lacks. Keys outside of both trees, such as ``provider``, stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum

from epp.lab.values.charts import tree_of
from epp.lab.values.counterparts import MOVES
from epp.lab.values.legacy_tree import LEGACY
from epp.lab.values.nodes import Section, paths
from epp.lab.values.paths import drop, get, put
from epp.lab.values.router_tree import ROUTER


class Tree(Enum):
    """The two trees, by the key that most of their values are under."""

    LEGACY = "inferenceExtension"
    ROUTER = "router"


@dataclass(slots=True)
class Converted:
    """Values in one tree, and a sentence for each key that was left out or means more than its counterpart."""

    values: dict[str, object]
    notes: list[str] = field(default_factory=list)
    rest: dict[str, object] = field(default_factory=dict)
    """What was not carried over yet; of keys outside of both trees, what stays."""


def tree_in(values: Mapping[str, object]) -> Tree | None:
    """Return the tree that ``values`` are written in; None if they have keys of neither."""
    trees = {tree_of([key]) for key, value in values.items() if value}
    return Tree.ROUTER if "router" in trees else Tree.LEGACY if Tree.LEGACY.value in trees else None


def converted(values: Mapping[str, object], to: Tree) -> Converted:
    """Return ``values``, which have been checked, in the tree ``to``; values in it already stay as they are."""
    rest = deepcopy(dict(values))
    if tree_in(values) in (to, None):
        return Converted(rest)
    result = Converted({}, rest=rest)
    special = _TO_ROUTER if to is Tree.ROUTER else _TO_LEGACY
    for path, move in special.items():
        if (value := get(rest, path)) is not None:
            drop(rest, path)
            move(value, result)
    moves = MOVES if to is Tree.ROUTER else tuple((new, old) for old, new in MOVES if old not in _OLDER_NAMES)
    for here, there in moves:
        if (value := get(rest, here)) is not None:
            drop(rest, here)
            put(result.values, there, value)
    for path, value in _leftovers(rest):
        result.notes.append(f"{path} was left out: the tree of {to.value} has no counterpart (it was {value!r})")
    for key, value in rest.items():
        if tree_of([key]) is None:
            result.values[key] = value
    return result


_PAIR = re.compile(r"[^\s=!,()]+==?[^\s=!,()]+")
_OLDER_NAMES = ("inferenceExtension.image.hub", "inferenceExtension.image.name", "istio.destinationRule")


def _leftovers(rest: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return what is still in one of the trees after all moves, without empty sections."""
    found: list[tuple[str, object]] = []
    for path, node in paths(Section({**LEGACY, **ROUTER})):
        value = get(rest, ".".join(path))
        if value is not None and not (isinstance(node, Section) and isinstance(value, dict)):
            found.append((".".join(path), value))
    return found


def _gke_monitoring(value: object, into: Converted) -> None:
    if not isinstance(value, dict) or not (value.get("enabled") or value.get("enable")):
        return
    put(into.values, "router.monitoring.provider.name", "gmp")
    put(into.values, "router.monitoring.prometheus.enabled", True)


def _prometheus(value: object, into: Converted) -> None:
    """Take over ``enable``, which was meant as ``enabled``; the rest of the section moves."""
    put(into.values, "router.monitoring.prometheus.enabled", value)


def _autopilot(value: object, into: Converted) -> None:
    put(into.values, "router.monitoring.provider.gmp.autopilot", value)
    put(into.rest, "provider.gke.autopilot", value)


def _parser(value: object, into: Converted) -> None:
    if value:
        put(into.values, "router.epp.parsers", [value])


def _endpoints(value: object, into: Converted) -> None:
    """Carry over ``endpointsServer``, whose selector, ports and type count only where no pool is created."""
    section = value if isinstance(value, dict) else {}
    if (create := section.get("createInferencePool")) is not None:
        put(into.values, "router.inferencePool.create", create)
    if create is not False:
        return
    for path in ("targetPorts", "targetPortNumber", "modelServerType", "modelServerProtocol", "modelServers"):
        drop(into.rest, f"inferencePool.{path}")
    servers: dict[str, object] = {}
    if selector := section.get("endpointSelector"):
        pairs = [part.strip() for part in str(selector).split(",")]
        if all(_PAIR.fullmatch(pair) for pair in pairs):
            servers["matchLabels"] = dict(re.split("==?", pair, maxsplit=1) for pair in pairs)
        else:
            servers["selector"] = selector
    if (ports := section.get("targetPorts")) is not None:
        numbers = ports if isinstance(ports, list) else [int(each) for each in str(ports).split(",")]
        servers["targetPorts"] = [{"number": number} for number in numbers]
    for here, there in (("modelServerType", "type"), ("modelServerProtocol", "protocol")):
        if section.get(here) is not None:
            servers[there] = section[here]
    put(into.values, "router.modelServers", servers)


def _pool_or_none(value: object, into: Converted) -> None:
    """Write ``endpointsServer`` where no pool is created; the older chart reads nothing else then."""
    put(into.values, "inferenceExtension.endpointsServer.createInferencePool", value)
    servers = get(into.rest, "router.modelServers")
    if value is not False or not isinstance(servers, dict):
        return
    drop(into.rest, "router.modelServers")
    section: dict[str, object] = {}
    labels = servers.get("matchLabels")
    if selector := servers.get("selector") or ",".join(f"{key}={each}" for key, each in (labels or {}).items()):
        section["endpointSelector"] = selector
    if ports := servers.get("targetPorts"):
        section["targetPorts"] = ",".join(str(port["number"]) for port in ports)
    for here, there in (("type", "modelServerType"), ("protocol", "modelServerProtocol")):
        if servers.get(here) is not None:
            section[there] = servers[here]
    put(into.values, "inferenceExtension.endpointsServer", section)


def _monitoring_provider(value: object, into: Converted) -> None:
    section = value if isinstance(value, dict) else {}
    if section.get("name") == "gmp":
        put(into.values, "inferenceExtension.monitoring.gke.enabled", True)
    gmp = section.get("gmp")
    if isinstance(gmp, dict) and gmp.get("autopilot") is not None and get(into.rest, "provider.gke.autopilot") is None:
        put(into.rest, "provider.gke.autopilot", gmp["autopilot"])


def _parsers(value: object, into: Converted) -> None:
    if not isinstance(value, list) or not value:
        return
    put(into.values, "inferencePool.parser", value[0])
    if len(value) > 1:
        into.notes.append(
            f"router.epp.parsers: the older tree takes one parser; {', '.join(map(str, value[1:]))} was left out"
        )


def _proxy_type(value: object, into: Converted) -> None:
    if value != "envoy":  # the older tree has no other
        into.notes.append(
            f"router.proxy.proxyType was left out: the sidecar of the older tree is Envoy, and not {value}"
        )


_Move = Callable[[object, Converted], None]
_TO_ROUTER: Mapping[str, _Move] = {
    "inferencePool.parser": _parser,
    "inferenceExtension.monitoring.gke": _gke_monitoring,
    "inferenceExtension.monitoring.prometheus.enable": _prometheus,
    "inferenceExtension.endpointsServer": _endpoints,
    "provider.gke.autopilot": _autopilot,
}
_TO_LEGACY: Mapping[str, _Move] = {
    "router.inferencePool.create": _pool_or_none,
    "router.monitoring.provider": _monitoring_provider,
    "router.epp.parsers": _parsers,
    "router.proxy.proxyType": _proxy_type,
}
