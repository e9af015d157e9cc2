"""A container's environment, and what the downward API tells of a pod."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.cluster.node.api import Copy, Object
from tests.cluster.node.images import SEARCH_PATH
from tests.cluster.node.network import API_ADDRESS, GATEWAY

REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_.][A-Za-z0-9_.-]*)\)")
KEYED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


class NotYet(Exception):
    """Something that the pod names is missing; it waits for it."""


def field(pod: Object, path: str, address: str) -> str:
    """Return a field of the pod as the downward API names it. Raises: NotYet for a path it does not have."""
    metadata, spec = pod["metadata"], pod["spec"]
    if keyed := KEYED.fullmatch(path):
        return str(metadata.get(keyed[1], {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.removeprefix("metadata."), {})
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": GATEWAY,
        "status.hostIPs": GATEWAY,
    }
    if path not in known:
        raise NotYet(f"this node knows no field {path}")
    return str(known[path])


def environment(pod: Object, container: Object, address: str, maps: Copy, secrets: Copy) -> dict[str, str]:
    """Return the variables of a container. Raises: NotYet for a ConfigMap, Secret or key that is missing."""
    namespace = pod["metadata"]["namespace"]
    values = {
        "PATH": SEARCH_PATH,
        "HOSTNAME": pod["metadata"]["name"],
        "HOME": "/tmp",
        "KUBERNETES_SERVICE_HOST": API_ADDRESS,
        "KUBERNETES_SERVICE_PORT": "443",
    }
    for source in container.get("envFrom", ()):
        for kind, copy in (("configMapRef", maps), ("secretRef", secrets)):
            if kind in source:
                for key, value in _data(copy, namespace, source[kind], kind).items():
                    values[source.get("prefix", "") + key] = value
    for variable in container.get("env", ()):
        values[variable["name"]] = _value(pod, container, variable, address, maps, secrets, values)
    return values


def expand(text: str, values: dict[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable, where there is one; ``$$(NAME)`` is the text ``$(NAME)``."""
    return REFERENCE.sub(lambda m: m[0][1:] if m[1] else values.get(m[2], m[0]), text)


def _value(
    pod: Object, container: Object, variable: Object, address: str, maps: Copy, secrets: Copy, values: dict[str, str]
) -> str:
    namespace, source = pod["metadata"]["namespace"], variable.get("valueFrom")
    if not source:
        return expand(variable.get("value", ""), values)
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], address)
    if "resourceFieldRef" in source:
        return resource(container, source["resourceFieldRef"])
    kind = "configMapKeyRef" if "configMapKeyRef" in source else "secretKeyRef"
    reference = source[kind]
    data = _data(maps if kind == "configMapKeyRef" else secrets, namespace, reference, kind)
    if reference["key"] not in data and not reference.get("optional"):
        raise NotYet(f"{kind} {reference['name']} has no key {reference['key']}")
    return data.get(reference["key"], "")


def resource(container: Object, reference: Object) -> str:
    """Return a resource of a container as the downward API does, in whole cores or bytes; 0 where it is not set."""
    side, _, name = reference["resource"].partition(".")
    text = str(container.get("resources", {}).get(side, {}).get(name, "0"))
    units = {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}
    number = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if number is None:
        raise NotYet(f"no quantity: {text}")
    divisor = str(reference.get("divisor") or "1")
    scale = units.get(divisor.lstrip("0123456789."), 1) * float(re.sub(r"[A-Za-z]", "", divisor) or 1) or 1
    return str(-int(-float(number[1]) * units.get(number[2], 1) // scale))


def _data(copy: Copy, namespace: str, reference: Object, kind: str) -> dict[str, str]:
    found = copy.get(namespace, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise NotYet(f'{kind} "{reference["name"]}" not found')
    return {key: value.decode() for key, value in contents(found).items()}


def contents(found: Object) -> dict[str, bytes]:
    """Return what a ConfigMap or Secret holds."""
    plain = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    if found.get("kind") == "Secret" or "type" in found:
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    binary: dict[str, Any] = found.get("binaryData") or {}
    return plain | {key: base64.b64decode(value) for key, value in binary.items()}
