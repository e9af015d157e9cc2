"""Rules about the engines of a pool: that they are alike, that caches fit, and that requests come by the picker."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from epp.doctor.finding import Finding
from epp.doctor.flags_written import Written
from epp.doctor.objects import Container, Pod
from epp.doctor.pages import MANY, EnginePage
from epp.doctor.shown import word
from epp.doctor.snapshot import Picker, Pool, Snapshot, config_map_of, flags_of, of_pod
from epp.units import parse_bytes, written_bytes

CAPACITY_RATIO = 1.05
"""Engines of one kind reserve nearly the same memory: a larger ratio is another size. A guess."""
_RUNS = re.compile(r"(^|[\s/])vllm(\s|$|\.entrypoints)")
_PRECISE = re.compile(r"\b(kv-?events?|precise)", re.IGNORECASE)


def differing(seen: Snapshot) -> Iterator[Finding]:
    """Find engines of one pool that hash, hold or serve differently."""
    for pool in seen.asked_pools():
        pages = {pod.metadata.name: page for pod in seen.pods_of(pool) for page in _pages(seen, pod, pool)}
        for what, of in (
            ("models", lambda page: ", ".join(page.models)),
            ("block sizes", lambda page: page.block_size),
        ):
            values: dict[str, list[str]] = defaultdict(list)
            for pod, page in pages.items():
                if value := of(page):
                    values[value].append(pod)
            yield from _differ(pool, what, values)
        # Prefill and decode differ on purpose, so that pods are compared within a role.
        for role in sorted({_role(one) for one in seen.pods_of(pool)}):
            alike = [one for one in seen.pods_of(pool) if _role(one) == role]
            connectors: dict[str, list[str]] = defaultdict(list)
            for one in alike:
                for container in _engines(one):
                    if "-c" not in (*container.command, *container.args):  # what a shell runs is not read
                        flags = flags_of(container)
                        connectors[_connector(flags)].append(one.metadata.name)
            yield from _differ(pool, "connectors", connectors)
            names = {one.metadata.name for one in alike}
            yield from _capacities(pool, {name: page for name, page in pages.items() if name in names})


def memory(seen: Snapshot) -> Iterator[Finding]:
    """Find caches in CPU memory that are larger than the container may use."""
    for pod in _once(seen):
        for container in _engines(pod):
            cache = cpu_cache_bytes(flags_of(container))
            limit = _limit(container)
            if cache is not None and limit is not None and cache > limit:
                yield Finding(
                    "cache-above-memory", of_pod(pod), f"has a CPU cache of {written_bytes(cache)}, and the memory "
                    f"limit of its container {container.name} is {container.resources.limits['memory']}, so that the "
                    "kernel ends the engine once the cache fills.",
                    f"kubectl -n {seen.namespace} set resources {_workload(pod)} -c {container.name} "
                    f"--limits=memory={(cache >> 30) * 5 // 4 + 8}Gi",
                )  # fmt: skip


def prefix_caching(seen: Snapshot) -> Iterator[Finding]:
    """Find engines whose prefix cache is off, so that no pick can be better than another."""
    for pool in seen.asked_pools():
        off = [
            pod
            for pod in seen.pods_of(pool)
            if any(page.prefix_caching == "False" for page in _pages(seen, pod, pool))
            or any(flags_of(one).value("no-enable-prefix-caching") == "true" for one in _engines(pod))
        ]
        if off:
            yield Finding(
                "prefix-caching-off", of_pod(off[0]), f"has no prefix cache ({len(off)} pods of {pool}), so that "
                "every prompt is computed anew, wherever it is sent.",
                f"kubectl -n {seen.namespace} edit {_workload(off[0])}, and remove --no-enable-prefix-caching",
            )  # fmt: skip


def events(seen: Snapshot) -> Iterator[Finding]:
    """Find KV events that engines publish and that no plugin of the picker receives."""
    for pool in seen.asked_pools():
        publishing = [
            pod
            for pod in seen.pods_of(pool)
            for one in _engines(pod)
            if _json(flags_of(one), "kv-events-config").get("enable_kv_cache_events")
        ]
        texts = [_configuration(seen, picker) for picker in seen.pickers() if picker.pool_name == pool.name]
        if publishing and texts and not any(text is None or _PRECISE.search(text) for text in texts):
            yield Finding(
                "kv-events-unread", of_pod(publishing[0]), f"publishes KV events ({len(publishing)} pods of {pool}), "
                "and no plugin of the picker's configuration receives them.",
                "tierwise print precise >picker.yaml, and use it as the picker's configuration",
            )  # fmt: skip


def bypass(seen: Snapshot) -> Iterator[Finding]:
    """Find a gateway that goes past the picker: engines answer requests, and pickers decide about none."""
    for pool in seen.asked_pools():
        pickers = [picker for picker in seen.pickers() if picker.pool_name == pool.name]
        pages = [
            seen.picker_pages[pod.metadata.name]
            for picker in pickers
            for pod in seen.pods_of_picker(picker)
            if pod.metadata.name in seen.picker_pages
        ]
        pods = [pod for picker in pickers for pod in seen.pods_of_picker(picker)]
        if len(pages) < len(pods):  # one that is not read may be the leader of an election, which decides
            continue
        if not pages or any(page.requests != 0 for page in pages):  # None: a picker that does not say
            continue
        starts = [page.started for page in pages if page.started is not None]
        engines = [page for pod in seen.pods_of(pool) for page in _pages(seen, pod, pool)]
        # Of an engine that is older than a picker it is not known when its requests came, unless they come now.
        later = sum(
            page.requests if page.started is not None and starts and page.started > max(starts) else page.more
            for page in engines
        )
        if later >= MANY:
            yield Finding(
                "picker-bypassed", str(pool), f"has engines that answered {later:.0f} requests since its pickers "
                "started, and the pickers decided about none: the gateway goes past them.",
                f"kubectl -n {pool.namespace} get httproutes -o yaml, and see that backendRefs name the InferencePool "
                f"{pool.name} and that the gateway supports it (Istio: ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true)",
            )  # fmt: skip


def cpu_cache_bytes(flags: Written) -> int | None:
    """Return the bytes of CPU memory that an engine's flags give to KV; None if they do not say."""
    extra = _json(flags, "kv-transfer-config").get("kv_connector_extra_config")
    extra = extra if isinstance(extra, dict) else {}
    if isinstance(size := extra.get("cpu_bytes_to_use"), int | float | str):
        return _bytes(str(size))
    if isinstance(size := extra.get("max_local_cpu_size"), int | float):
        return _bytes(f"{size}Gi")
    return _bytes(f"{flags.value('kv-offloading-size') or flags.value('swap-space')}Gi")


def _differ(pool: Pool, what: str, values: dict[str, list[str]]) -> Iterator[Finding]:
    if len(values) > 1:
        shown = "; ".join(f"{pods[0]} has {value or 'none'}" for value, pods in sorted(values.items())[:3])
        yield Finding(
            "engines-differ", str(pool), f"has engines with different {what} ({shown}), so that a prompt's blocks on "
            "one say nothing about another.",
            f"kubectl -n {pool.namespace} get pods -o yaml -l "
            + ",".join(f"{name}={value}" for name, value in sorted(pool.labels.items()))
            + ", and give all of them the same arguments",
        )  # fmt: skip


def _capacities(pool: Pool, pages: dict[str, EnginePage]) -> Iterator[Finding]:
    tiers = {tier for page in pages.values() for tier in page.capacities or {}}
    for tier in sorted(tiers):
        held = {
            pod: page.capacities[tier] for pod, page in pages.items() if page.capacities and tier in page.capacities
        }
        least, most = min(held, key=held.__getitem__), max(held, key=held.__getitem__)
        if held[most] > held[least] * CAPACITY_RATIO:
            values = {f"{held[one]:,.0f} tokens": [one] for one in (least, most)}
            yield from _differ(pool, f"capacities of the tier {tier}", values)


def _pages(seen: Snapshot, pod: Pod, pool: Pool) -> Iterator[EnginePage]:
    for port in pool.ports:
        if (page := seen.engine_pages.get(f"{pod.metadata.name}:{port}")) is not None:
            yield page


def _engines(pod: Pod) -> Iterator[Container]:
    """Yield the containers of a pod that run vLLM, as their command shows."""
    for container in pod.spec.containers:
        words = (*container.command, *container.args[:2])
        image = container.image.split("@")[0].rpartition("/")[2].partition(":")[0]
        if "vllm" in image or any(_RUNS.search(word) for word in words if not word.startswith("-")):
            yield container


def _once(seen: Snapshot) -> Iterator[Pod]:
    """Yield one pod of each owner: its replicas have the same arguments."""
    found = set[tuple[str, str]]()
    for pool in seen.asked_pools():
        for pod in seen.pods_of(pool):
            owner = next(((one.kind, one.name) for one in pod.metadata.owner_references), ("Pod", pod.metadata.name))
            if owner not in found:
                found.add(owner)
                yield pod


def _workload(pod: Pod) -> str:
    owner = next(iter(pod.metadata.owner_references), None)
    if owner is None:
        return f"pod/{pod.metadata.name}"
    if owner.kind == "ReplicaSet":
        return word(f"deployment/{owner.name.rpartition('-')[0]}")
    return word(f"{owner.kind.lower()}/{owner.name}")


def _connector(flags: Written) -> str:
    transfer = _json(flags, "kv-transfer-config")
    return " of ".join(str(transfer[key]) for key in ("kv_connector", "kv_connector_module_path") if key in transfer)


def _role(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get("llm-d.ai/role", "")


def _json(flags: Written, name: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(flags.value(name) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _limit(container: Container) -> int | None:
    limit = container.resources.limits.get("memory")
    return None if limit is None else _bytes(str(limit))


def _bytes(text: str) -> int | None:
    try:
        return parse_bytes(text)
    except (ValueError, OverflowError):
        return None


def _configuration(seen: Snapshot, picker: Picker) -> str | None:
    """Return the text of a picker's configuration; None if it is not known."""
    mounted = config_map_of(picker)
    config_map = seen.maps.get(mounted[0]) if mounted is not None else None
    return config_map.data.get(mounted[1]) if mounted is not None and config_map is not None else None
