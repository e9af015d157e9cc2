"""Rules about pickers: their flags, probes, images, pods, configuration and clock."""

from __future__ import annotations

from collections.abc import Iterator

from epp.config.digest import digest
from epp.doctor.finding import Finding
from epp.doctor.rules_pools import why_not_ready
from epp.doctor.shown import word
from epp.doctor.snapshot import Snapshot, config_map_of, is_ready, of_pod

CLOCK_S = 5.0
"""A clock that is off by more spoils ages of Leases and of tokens. A guess: pages are read within a second or two."""
DIGEST = "configuration-digest"
CURRENT = "configuration-current"
_STANDBY_FAILS = ("readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "")
"""Names of the health service that a standby answers with NOT_SERVING."""


def flags(seen: Snapshot) -> Iterator[Finding]:
    """Find flags that do not do what they seem to say."""
    for picker in seen.pickers():
        edit = f"kubectl -n {seen.namespace} edit deployment {picker.name}"
        for name in picker.written.split_booleans:
            yield Finding(
                "boolean-in-two-words", str(picker), f"has the flag --{name} with its value as a word of its own: "
                "pickers of Go read that as true, and ours refuse it.", f"{edit}, and write {word(f'--{name}=false')}",
            )  # fmt: skip
        group = picker.written.value("pool-group")
        there = [pool.group for pool in seen.pools if pool.name == picker.pool_name]
        if group and there and group not in there:
            yield Finding(
                "picker-reads-other-group", str(picker), f"looks for its pool in {group}, and the pool is in "
                f"{there[0]}, so that the picker finds no endpoints.", f"{edit}, and write --pool-group={there[0]}",
            )  # fmt: skip


def probes(seen: Snapshot) -> Iterator[Finding]:
    """Find liveness probes that restart the standbys of an election."""
    for picker in seen.pickers():
        probe = picker.container.liveness_probe
        if not picker.written.is_on("ha-enable-leader-election", False) or probe is None or probe.grpc is None:
            continue
        if probe.grpc.service in _STANDBY_FAILS:
            index = list(picker.deployment.spec.template.spec.containers).index(picker.container)
            path = f"/spec/template/spec/containers/{index}/livenessProbe/grpc/service"
            yield Finding(
                "standby-restarted", str(picker), f"has a liveness probe for the name {probe.grpc.service!r}, which "
                "only the leader of an election serves, so that standbys are restarted for ever.",
                f"kubectl -n {seen.namespace} patch deployment {picker.name} --type=json -p "
                f"""'[{{"op":"add","path":"{path}","value":"liveness"}}]'""",
            )  # fmt: skip


def images(seen: Snapshot) -> Iterator[Finding]:
    """Find an image that is not the chart's, or another project's picker."""
    for picker in seen.pickers():
        image = picker.container.image
        labels = picker.deployment.metadata.labels or {}
        version, tag = labels.get("app.kubernetes.io/version", ""), _tag(image)
        if not picker.is_tierwise:
            yield Finding(
                "picker-is-not-tierwise", str(picker), f"runs {image}, which is another picker, so that its tiers and "
                "pages are not what this command knows.",
                "helm upgrade RELEASE manifests/charts/inferencepool --reuse-values --set tierwise.image.literal=false",
            )  # fmt: skip
        elif version and tag and _is_version(tag) and tag.lstrip("v") != version.lstrip("v"):
            yield Finding(
                "image-differs-from-chart", str(picker), f"runs {image}, and its chart is of {version}, so that flags "
                "and rights of one may be unknown to the other.",
                f"kubectl -n {seen.namespace} set image deployment/{picker.name} "
                + word(f"{picker.container.name}={image.rpartition(':')[0]}:{version}"),
            )  # fmt: skip


def pods(seen: Snapshot) -> Iterator[Finding]:
    """Find pickers without a ready pod, with what the kubelet or the picker itself says."""
    for picker in seen.pickers():
        there = seen.pods_of_picker(picker)
        if picker.deployment.spec.replicas == 0:
            yield Finding(
                "picker-scaled-to-zero", str(picker), "has 0 replicas, so that no picker answers.",
                f"kubectl -n {seen.namespace} scale deployment {picker.name} --replicas=1",
            )  # fmt: skip
        elif seen.saw("pods") and not any(map(is_ready, there)):
            said = [seen.picker_pages[pod.metadata.name] for pod in there if pod.metadata.name in seen.picker_pages]
            reasons = [page.sentence for page in said if not page.ready] or [
                reason.lstrip(": ") for pod in there if (reason := why_not_ready(pod))
            ]
            yield Finding(
                "picker-not-ready", str(picker), "has no ready pod"
                f"{f' ({reasons[0]})' if reasons else ''}, so that no request is placed.",
                f"kubectl -n {seen.namespace} logs deployment/{picker.name} -c {picker.container.name} --tail=50",
            )  # fmt: skip


def configuration(seen: Snapshot) -> Iterator[Finding]:
    """Find a ConfigMap whose text is not what a picker uses, and pickers that use different texts."""
    for picker in seen.pickers():
        used: dict[str, str] = {}
        for pod in seen.pods_of_picker(picker):
            page = seen.picker_pages.get(pod.metadata.name)
            if page is not None and DIGEST in page.facts:
                used[pod.metadata.name] = page.facts[DIGEST]
        if len(set(used.values())) > 1:
            yield Finding(
                "replicas-differ", str(picker), f"has pods with different configurations: {_pairs(used)}.",
                f"kubectl -n {seen.namespace} rollout restart deployment {picker.name}",
            )  # fmt: skip
            continue
        mounted = config_map_of(picker)
        if mounted is None or mounted[0] not in seen.maps:
            continue
        name, key, by_path = mounted
        config_map = seen.maps[name]
        if config_map is None or key not in config_map.data:
            missing = "does not exist" if config_map is None else f"has no key {key}"
            yield Finding(
                "configuration-missing", f"ConfigMap {seen.namespace}/{name}", f"{missing}, and {picker} reads its "
                "configuration there.", f"kubectl -n {seen.namespace} edit deployment {picker.name}",
            )  # fmt: skip
            continue
        wanted = digest(config_map.data[key].encode())
        if used and wanted not in used.values():
            yield Finding(
                "configuration-not-in-force", f"ConfigMap {seen.namespace}/{name}", f"has in {key} another text than "
                f"the one that {picker} uses: {_why_not_used(seen, used, by_path=by_path)}.",
                f"kubectl -n {seen.namespace} get configmap {name} -o jsonpath='{{.data.{_escaped(key)}}}'"
                " | tierwise check --config-file /dev/stdin",
            )  # fmt: skip


def clocks(seen: Snapshot) -> Iterator[Finding]:
    """Find pickers whose clock is not the API server's."""
    for picker in seen.pickers():
        for pod in seen.pods_of_picker(picker):
            page = seen.picker_pages.get(pod.metadata.name)
            if page is None or page.clock is None or not page.read_at:
                continue
            ahead = page.clock - page.read_at
            if abs(ahead) > CLOCK_S:
                yield Finding(
                    "clock-differs", of_pod(pod), f"has a clock {abs(ahead):.0f} s "
                    f"{'ahead of' if ahead > 0 else 'behind'} the API server's, so that Leases and "
                    "tokens end at the wrong time.",
                    f"kubectl get pod -n {seen.namespace} {pod.metadata.name} -o wide, and mend the time of its node",
                )  # fmt: skip


def _why_not_used(seen: Snapshot, used: dict[str, str], *, by_path: bool) -> str:
    if by_path:
        return "a file that is mounted by subPath is never changed while the pod runs"
    refused = [pod for pod in used if seen.picker_pages[pod].facts.get(CURRENT) == "false"]
    if refused:
        return f"the pod {refused[0]} has refused it, and goes on with the one before"
    return "the kubelet has not written it yet, which takes up to two minutes, or changes are not followed"


def _pairs(used: dict[str, str]) -> str:
    return ", ".join(f"{pod} has {text}" for pod, text in sorted(used.items())[:4])


def _escaped(key: str) -> str:
    """Return a key as kubectl's jsonpath wants it."""
    return key.replace(".", "\\.")


def _tag(image: str) -> str:
    return image.split("@")[0].rpartition("/")[2].partition(":")[2]


def _is_version(tag: str) -> bool:
    return tag.lstrip("v")[:1].isdigit() and "." in tag
