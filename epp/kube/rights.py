"""The rights that a picker needs in its cluster, by feature, and the manifest of those that are missing.

Pure values: ``epp.kube.reviews`` asks the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from epp.kube.objects_inference import GROUPS, OBJECTIVE, PLURALS, REWRITE, VERSION

RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = "system:serviceaccount:"
"""How the API names a service account: this, its namespace, a colon, its name."""


class Right(NamedTuple):
    """One verb on one kind of object."""

    group: str
    """Empty for the core group, in which pods are."""
    resource: str
    verb: str
    namespace: str | None
    """None for objects that belong to no namespace, such as reviews."""

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in the namespace {self.namespace}"
        return f"{self.verb} {f'{self.resource}.{self.group}' if self.group else self.resource}{where}"


@dataclass(frozen=True, slots=True)
class Need:
    """The rights of one feature."""

    feature: str
    """One word, for the metric."""
    rights: tuple[Right, ...]
    without: str
    """What happens without them, as the end of a sentence."""
    version: str = ""
    """The API's group and version, such as ``llm-d.ai/v1alpha2``: needed only where it is served; empty for always."""
    instead: tuple[Need, ...] = ()
    """Other needs that make this one unnecessary: one of them all is enough, and of several the first is missing."""


def rights(group: str, resource: str, verbs: Iterable[str], namespace: str | None) -> tuple[Right, ...]:
    """Return one right for each verb."""
    return tuple(Right(group, resource, verb, namespace) for verb in verbs)


def resource_at(path: str) -> tuple[str, str]:
    """Return the group and the resource of a request's path, such as ``("", "pods/status")``.

    Both are empty for a path that is no object's or list's.
    """
    root, *parts = path.strip("/").split("/")
    group, parts = (parts[0], parts[2:]) if root == "apis" and parts else ("", parts[1:])
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return group, "/".join((*parts[:1], *parts[2:3]))


def pods(namespace: str) -> Need:
    """Return what it takes to follow pods."""
    return Need("pods", rights("", "pods", ("list", "watch"), namespace), "the picker does not become ready")


def leases(namespace: str, pickers: str) -> Need:
    """Return what it takes to elect a leader by a Lease in ``namespace``, and to see its pod in ``pickers``."""
    return Need(
        "leader-election",
        rights("coordination.k8s.io", "leases", ("get", "list", "watch", "create", "patch"), namespace)
        + rights("", "pods", ("list", "watch"), pickers),
        "no picker leads, or standbys notice its end late",
    )


def inference_pool(versions: Mapping[str, str], namespace: str) -> Need:
    """Return what it takes to follow an InferencePool: ``versions`` has the version of each group that may have it."""
    first, *others = (
        Need(
            "pool",
            rights(group, "inferencepools", ("list", "watch"), namespace),
            "the picker does not become ready",
            version=f"{group}/{version}",
        )
        for group, version in versions.items()
    )
    return replace(first, instead=tuple(others))


def custom_resources(namespace: str) -> Iterator[Need]:
    """Yield what it takes to follow objectives and rewrites, in each group that the API server serves.

    To write their condition ``Accepted`` is left out: it is done where the right is given.
    """
    for kind, feature, what in (
        (OBJECTIVE, "objectives", "priorities come from the configuration alone"),
        (REWRITE, "rewrites", "rules of rewrites come from the configuration alone"),
    ):
        for group in GROUPS:
            some = rights(group, PLURALS[kind], ("list", "watch"), namespace)
            yield Need(feature, some, what, version=f"{group}/{VERSION}")


def reviews() -> Need:
    """Return what it takes to ask who may read ``/metrics``."""
    return Need(
        "metrics-auth",
        rights("authentication.k8s.io", "tokenreviews", ("create",), None)
        + rights("authorization.k8s.io", "subjectaccessreviews", ("create",), None),
        "/metrics is answered with 500",
    )


def manifest(missing: Iterable[Right], account: str) -> str:
    """Return the Roles with ``missing`` and their bindings to ``account``, as YAML for ``kubectl apply``.

    There is one Role for each namespace, and a ClusterRole for objects without one. ``account`` is the name that the
    API has for the picker; of one that is not a service account it is bound as a user.
    """
    by_namespace: dict[str | None, list[Right]] = {}
    for right in dict.fromkeys(missing):  # two features may need the same
        by_namespace.setdefault(right.namespace, []).append(right)
    return "\n---\n".join(
        document
        for namespace, some in sorted(by_namespace.items(), key=lambda item: item[0] or "")
        for document in (_role(namespace, some), _binding(namespace, account))
    )


def _role(namespace: str | None, missing: Iterable[Right]) -> str:
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in missing:
        verbs.setdefault((right.group, right.resource), []).append(right.verb)
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), some in verbs.items():
        rules.setdefault((group, tuple(some)), []).append(resource)
    lines = (
        f'  - {{apiGroups: ["{group}"], resources: [{", ".join(resources)}], verbs: [{", ".join(some)}]}}'
        for (group, some), resources in rules.items()
    )
    return "\n".join([*_head(namespace, "Role"), "rules:", *lines])


def _binding(namespace: str | None, account: str) -> str:
    kind = "ClusterRole" if namespace is None else "Role"
    subject = f'{{kind: User, apiGroup: {RBAC}, name: "{account}"}}'
    if account.startswith(_ACCOUNT):
        home, _, name = account.removeprefix(_ACCOUNT).partition(":")
        subject = f"{{kind: ServiceAccount, namespace: {home}, name: {name}}}"
    return "\n".join(
        [
            *_head(namespace, "RoleBinding"),
            f"roleRef: {{apiGroup: {RBAC}, kind: {kind}, name: tierwise}}",
            f"subjects: [{subject}]",
        ]
    )


def _head(namespace: str | None, kind: str) -> list[str]:
    kind, where = (f"Cluster{kind}", "") if namespace is None else (kind, f", namespace: {namespace}")
    return [f"apiVersion: {RBAC}/v1", f"kind: {kind}", f"metadata: {{name: tierwise{where}}}"]
