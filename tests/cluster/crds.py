"""Custom resource definitions of other projects, taken from their Go modules into the cache and never committed.

Go checks what it downloads against the public checksum database. What no module has is in ``NOT_OBTAINABLE``.
"""

from __future__ import annotations

import copy
import fcntl
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.environment import cache, fetched

Definition = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ESTABLISHED_S = 60.0


class _Loader(yaml.CSafeLoader):
    """Reads a lone ``=`` as text, as YAML 1.2 and Go do."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_yaml_str)


@dataclass(frozen=True)
class Source:
    """Files of a Go module."""

    module: str
    version: str
    files: str


def _inference(version: str) -> Source:
    return Source("sigs.k8s.io/gateway-api-inference-extension", version, "config/crd/bases/*.yaml")


SETS = {
    **{f"inference-{v}": _inference(v) for v in ("v1.2.0", "v1.2.1", "v1.3.0", "v1.3.1", "v1.4.0", "v1.5.0", "v1.6.0")},
    "gateway-api": Source("sigs.k8s.io/gateway-api", "v1.5.1", "config/crd/standard/*.yaml"),
    "gateway-api-v1.6.1": Source("sigs.k8s.io/gateway-api", "v1.6.1", "config/crd/standard/*.yaml"),
    "prometheus-operator": Source(
        "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd/*.yaml"
    ),
    "istio": Source("istio.io/api", "v1.31.1", "kubernetes/customresourcedefinitions.gen.yaml"),
    "envoy-gateway": Source(
        "github.com/envoyproxy/gateway", "v1.9.1", "charts/gateway-helm/charts/crds/crds/generated/*.yaml"
    ),
}
NOT_OBTAINABLE = {
    "inference-v1.2.0-rc.1": "the module proxy does not have this version; v1.2.0 has the same kinds",
    "llm-d.ai": "the proxy does not have github.com/llm-d/llm-d-router; `llm_d()` renames the definitions of v1.5.0",
    "agentgateway.dev": "no Go module has the definitions",
    "aigateway.envoyproxy.io": "the proxy does not have github.com/envoyproxy/ai-gateway",
    "networking.gke.io": "Google's module of networking kinds lacks HealthCheckPolicy and GCPBackendPolicy",
    "monitoring.googleapis.com": "the proxy does not have github.com/GoogleCloudPlatform/prometheus-engine",
}


def definitions(name: str) -> list[Definition]:
    """Return the definitions of a set, which are fetched first where they are missing. Raises: Unavailable."""
    documents = (
        document
        for file in sorted(_files(name).glob("*.yaml"))
        for document in yaml.load_all(file.read_text(), _Loader)  # of the module's files, by a safe loader
    )
    return [document for document in documents if document and document["kind"] == "CustomResourceDefinition"]


def module_folder(name: str) -> Path:
    """Return the folder of the Go module that a set is from. Raises: Unavailable."""
    return fetched(SETS[name].module, SETS[name].version)


def llm_d() -> list[Definition]:
    """Return InferenceObjective and InferenceModelRewrite in the group llm-d.ai, with the schema of the older group."""
    renamed = []
    for one in definitions("inference-v1.5.0"):
        if one["spec"]["names"]["kind"] in ("InferenceObjective", "InferenceModelRewrite"):
            new = copy.deepcopy(one)
            new["spec"]["group"] = "llm-d.ai"
            new["metadata"] = {"name": f"{one['spec']['names']['plural']}.llm-d.ai"}
            renamed.append(new)
    return renamed


def install(plane: ControlPlane, *sets: str, kinds: tuple[str, ...] = ()) -> None:
    """Put sets of definitions into a control plane, or only ``kinds`` of them, and wait until they are served."""
    wanted = [one for name in sets for one in definitions(name)]
    apply(plane, [one for one in wanted if not kinds or one["spec"]["names"]["kind"] in kinds])


def apply(plane: ControlPlane, wanted: list[Definition]) -> None:
    """Create or replace definitions and wait until they are served."""
    for one in wanted:
        # As a whole, since a set replaces another one of the same names.
        path = f"{DEFINITIONS}/{one['metadata']['name']}?fieldManager=tests&force=true"
        plane.request("PATCH", path, {**one, "status": None}, "application/apply-patch+yaml")
    deadline = time.monotonic() + ESTABLISHED_S
    missing = {one["metadata"]["name"] for one in wanted}
    while missing:
        assert time.monotonic() < deadline, f"the API server does not serve {sorted(missing)}"
        listed = plane.request("GET", DEFINITIONS)["items"]
        missing -= {one["metadata"]["name"] for one in listed if _established(one)}
        time.sleep(0.05)


def _established(definition: Definition) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _files(name: str) -> Path:
    source = SETS[name]
    target = cache() / "crds" / f"{source.module.replace('/', '-')}@{source.version}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for file in sorted(fetched(source.module, source.version).glob(source.files)):
                shutil.copyfile(file, part / file.name)
            part.rename(target)
    return target
