"""Rules about definitions, pools, their selectors and ports, and the pods that they select."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from epp.discovery.pods import ACTIVE_PORTS
from epp.doctor.finding import Finding
from epp.doctor.objects import Pod
from epp.doctor.snapshot import Pool, Snapshot, declared, is_ready, of_pod
from epp.kube.groups import GROUP, OLD_GROUP

NO_DEFINITIONS = "no-definitions"
DEFINITIONS = (
    "helm upgrade --install RELEASE manifests/charts/inferencepool --reuse-values --set tierwise.crds.install=true"
)


def definitions(seen: Snapshot) -> Iterator[Finding]:
    """Find that no InferencePools are defined, that there is nothing to look at, or that a pool is missing."""
    pickers = seen.pickers()
    by_name = [picker for picker in pickers if picker.pool_name]
    if not seen.pool_groups and (by_name or not pickers):
        yield Finding(
            NO_DEFINITIONS, "the cluster", f"knows no InferencePools in {GROUP} or {OLD_GROUP}: their definitions "
            "are not installed, so that no pool can be made and no picker becomes ready.", DEFINITIONS,
        )  # fmt: skip
        return
    if not seen.exists:
        yield Finding(
            "no-such-namespace", f"Namespace {seen.namespace}", "does not exist in this cluster, so that nothing can "
            "be in it.", "kubectl config current-context; kubectl get namespaces",
        )  # fmt: skip
        return
    if not seen.saw("inferencepools", "deployments"):
        return
    if seen.name and not seen.asked_pools():
        yield Finding(
            "no-such-pool", f"InferencePool {seen.namespace}/{seen.name}", "does not exist in this namespace; there "
            f"{_are([pool.name for pool in seen.pools])}.", "kubectl get inferencepools --all-namespaces",
        )  # fmt: skip
        return
    if not seen.pools and not pickers:
        yield Finding(
            "nothing-installed", f"Namespace {seen.namespace}", "has neither an InferencePool nor a picker.",
            f"helm install qwen manifests/charts/inferencepool -n {seen.namespace} "
            "--set inferencePool.modelServers.matchLabels.app=qwen",
        )  # fmt: skip
    names = {pool.name for pool in seen.pools}
    for picker in by_name:
        of_other = picker.written.value("pool-namespace")
        if (
            "$(" not in picker.pool_name
            and picker.pool_name not in names
            and of_other in (None, "true", seen.namespace)
        ):
            yield Finding(
                "pool-missing", str(picker), f"follows the InferencePool {picker.pool_name}, which does not exist in "
                f"{seen.namespace}; there {_are(sorted(names))}, and the picker does not become ready.",
                f"kubectl -n {seen.namespace} set env deployment/{picker.name} --list, and correct --pool-name",
            )  # fmt: skip


def both_groups(seen: Snapshot) -> Iterator[Finding]:
    """Find a pool that is in both API groups: only the newer one counts."""
    groups = Counter(pool.name for pool in seen.asked_pools())
    for pool in seen.asked_pools():
        if groups[pool.name] > 1 and pool.group == OLD_GROUP:
            yield Finding(
                "pool-in-both-groups", str(pool), f"is in {OLD_GROUP} too: pickers and gateways use the one in "
                f"{GROUP}, and changes of this one have no effect.",
                f"kubectl -n {pool.namespace} delete {pool.resource}",
            )  # fmt: skip


def shared_pods(seen: Snapshot) -> Iterator[Finding]:
    """Find two pools that select the same pods, of which neither knows the other's load."""
    selected = [(pool, {pod.metadata.name for pod in seen.pods_of(pool)}) for pool in seen.pools]
    for (one, of_one), (other, of_other) in combinations(selected, 2):
        if one.name == other.name or seen.name not in ("", one.name, other.name):
            continue
        names = of_one & of_other
        if names and set(one.ports) & set(other.ports):
            yield Finding(
                "pools-share-pods", str(one), f"selects {_pods(sorted(names))} that {other} selects as well, so that "
                "each picker overlooks the requests of the other.",
                f"kubectl -n {other.namespace} edit {other.resource}",
            )  # fmt: skip


def selectors(seen: Snapshot) -> Iterator[Finding]:
    """Find selectors that are empty, match no pod, or match pods of other programs."""
    for pool in seen.asked_pools():
        selector = ",".join(f"{name}={value}" for name, value in sorted(pool.labels.items()))
        edit = f"kubectl -n {pool.namespace} edit {pool.resource}"
        if not pool.labels:
            text = "has an empty selector, which would select every pod, so pickers refuse it."
            yield Finding("selector-empty", str(pool), text, edit)
            continue
        pods = seen.pods_of(pool)
        if not pods and seen.saw("pods"):
            yield Finding(
                "selector-without-pods", str(pool), f"selects {selector}, which no pod has{_nearest(seen, pool)}; "
                "every request is refused.", edit,
            )  # fmt: skip
        strangers = {pod.metadata.name: pod for pod in pods if not _may_serve(pod, pool)}
        own = {pod.metadata.name for picker in seen.pickers() for pod in seen.pods_of_picker(picker)}
        strangers |= {pod.metadata.name: pod for pod in pods if pod.metadata.name in own}
        if strangers and len(strangers) < len(pods):
            yield Finding(
                "foreign-pods", str(pool), f"selects {_pods(sorted(strangers))} of another program: no container "
                f"declares {_ports(pool)}, and requests that are sent there fail.",
                f"kubectl -n {pool.namespace} label pod {next(iter(sorted(strangers)))} "
                f"{next(iter(sorted(pool.labels)))}-, or add a label to the selector",
            )  # fmt: skip


def ports(seen: Snapshot) -> Iterator[Finding]:
    """Find target ports that no container declares, and active ports that the pool does not have."""
    for pool in seen.asked_pools():
        pods = [pod for pod in seen.pods_of(pool) if declared(pod)]
        missing = [port for port in pool.ports if pods and not any(port in declared(pod) for pod in pods)]
        if missing:
            there = sorted(set[int]().union(*map(declared, pods)))
            yield Finding(
                "port-not-served", str(pool), f"sends requests to port {_listed(missing)}, which no container of its "
                f"pods declares; they declare {_listed(there)}.",
                f"kubectl -n {pool.namespace} patch {pool.resource} --type=merge -p "
                f"'{_ports_patch(pool, there[0])}'",
            )  # fmt: skip
        for pod in seen.pods_of(pool):
            unknown = sorted(active_ports(pod) - set(map(str, pool.ports)))
            if unknown:
                yield Finding(
                    "active-ports-unknown", of_pod(pod), f"has {_listed(unknown)} in the annotation "
                    f"{ACTIVE_PORTS[0]}, and {pool} has {_listed(pool.ports)}, so that the pod gets no requests there.",
                    f"kubectl -n {pool.namespace} annotate pod {pod.metadata.name} --overwrite "
                    f"{ACTIVE_PORTS[0]}={pool.ports[0] if pool.ports else 8000}",
                )  # fmt: skip


def unready_pods(seen: Snapshot) -> Iterator[Finding]:
    """Find pods that a readiness gate holds back, and a pool of which no pod is ready."""
    for pool in seen.asked_pools():
        pods = seen.pods_of(pool)
        held = {pod.metadata.name: _open_gates(pod) for pod in pods if not is_ready(pod) and _open_gates(pod)}
        if held:
            first = sorted(held)[0]
            yield Finding(
                "pods-held-by-gates", str(pool), f"gets no requests for {_pods(sorted(held))}: the containers are "
                f"ready, and the readiness gate {_listed(held[first])} is not set.",
                f"kubectl -n {pool.namespace} get pod {first} -o yaml, and see what should set the condition",
            )  # fmt: skip
        waiting = [pod for pod in pods if pod.metadata.name not in held]
        if waiting and not any(map(is_ready, pods)):
            yield Finding(
                "no-pod-ready", str(pool), f"has {_pods(sorted(pod.metadata.name for pod in waiting))}, of which none "
                f"is ready{why_not_ready(waiting[0])}; every request is refused.",
                f"kubectl -n {pool.namespace} describe pod {waiting[0].metadata.name}",
            )  # fmt: skip


def why_not_ready(pod: Pod) -> str:
    """Return what the kubelet says of the first container that waits, with a colon; empty for no word."""
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if (state := container.state.waiting) is not None and state.reason:
            again = f" after {container.restart_count} restarts" if container.restart_count else ""
            return f": container {container.name} is in {state.reason}{again}"
    unschedulable = [one.message for one in status.conditions if one.type == "PodScheduled" and one.status == "False"]
    return f": {unschedulable[0]}" if unschedulable and unschedulable[0] else ""


def active_ports(pod: Pod) -> set[str]:
    """Return what the annotation of active ports lists; nothing without one."""
    written = pod.metadata.annotations or {}
    text = next((written[name] for name in ACTIVE_PORTS if name in written), "")
    return {part.strip() for part in text.split(",") if part.strip()}


def _may_serve(pod: Pod, pool: Pool) -> bool:
    ports_there = declared(pod)
    return not ports_there or bool(ports_there & set(pool.ports))


def _open_gates(pod: Pod) -> list[str]:
    status = {one.type: one.status for one in pod.status.conditions}
    if status.get("ContainersReady") != "True":
        return []
    return [gate.condition_type for gate in pod.spec.readiness_gates if status.get(gate.condition_type) != "True"]


def _nearest(seen: Snapshot, pool: Pool) -> str:
    """Return which values the selector's labels have on pods of the namespace."""
    values = Counter(
        f"{name}={(pod.metadata.labels or {})[name]}"
        for pod in seen.alive()
        for name in pool.labels
        if name in (pod.metadata.labels or {})
    )
    return f" (there are pods with {_listed([pair for pair, _ in values.most_common(3)])})" if values else ""


def _ports_patch(pool: Pool, port: int) -> str:
    if pool.group == OLD_GROUP:
        return f'{{"spec":{{"targetPortNumber":{port}}}}}'
    return f'{{"spec":{{"targetPorts":[{{"number":{port}}}]}}}}'


def _ports(pool: Pool) -> str:
    return f"port {_listed(pool.ports)}"


def _pods(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the pod {names[0]}{more}" if names else "no pod"


def _listed(items: object) -> str:
    return ", ".join(map(str, items)) if isinstance(items, list | tuple) else str(items)


def _are(names: list[str]) -> str:
    return f"are {', '.join(names)}" if names else "are none"
