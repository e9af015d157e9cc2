"""The kustomizations of engines: what they add up to, what selects them, and that the guides' clean-up deletes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from epp.catalog.models import find
from kvengine.settings import read_settings
from tests.kustomize.kubectl import GIB, MANIFESTS, ModelServer, amount, build, kubectl, model_server, names

ENGINES = MANIFESTS / "modelserver" / "gpu" / "vllm"
VARIANTS = sorted(path.name for path in ENGINES.iterdir())
PLAIN = sorted(path.name for path in (MANIFESTS / "vllm").iterdir())
WITH_FILES = ["llm-d-fs-connector", "lmcache-connector"]
FOLDERS = [ENGINES / name / part for name in VARIANTS for part in ("base", "gke")] + [
    MANIFESTS / "vllm" / name for name in PLAIN
]
CACHE_GIB, ENGINE_GIB, SHM_GIB, WORKERS = 100, 80, 20, 2


def named(path: Path) -> str:
    return str(path.relative_to(MANIFESTS))


EVERY = sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))


@pytest.mark.parametrize("folder", EVERY, ids=named)
def test_every_kustomization_builds(folder: Path) -> None:
    kubectl()
    text = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if text["kind"] == "Component" and "resources" not in text:
        assert any(folder.name in (each / "kustomization.yaml").read_text() for each in EVERY if each != folder)
    else:
        assert build(folder)


def test_the_variants_are_those_of_the_guides() -> None:
    assert VARIANTS == [
        "kvengine-connector", "llm-d-fs-connector", "lmcache-connector", "lmcache-cpu-connector", "offloading-connector"
    ]  # fmt: skip
    assert PLAIN == ["kvengine-connector", "lmcache-connector", "offloading-connector"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_base_or_gke_applied_the_folder_above_deletes(variant: str) -> None:
    """`kubectl delete -k .../${CONNECTOR}`, as the guide for storage has it."""
    applied = [names(build(ENGINES / variant / part)) for part in ("base", "gke")]
    assert applied == [names(build(ENGINES / variant))] * 2


def test_what_one_connector_applied_any_other_deletes() -> None:
    """The guide for CPU memory applies `lmcache-connector`, and deletes with `offloading-connector`."""
    first, *others = (names(build(MANIFESTS / "vllm" / name)) for name in PLAIN)
    assert others == [first] * len(others)


def cache_bytes(server: ModelServer) -> int:
    """The CPU memory for KV of one pod with one engine, as its connector will compute it."""
    extra = server.transfer().get("kv_connector_extra_config", {})
    match server.transfer().get("kv_connector"):
        case "KVEngineConnector":
            settings, warnings = read_settings(extra, {})
            assert not warnings
            block_bytes = 16 * find("Qwen/Qwen3-32B").kv_bytes_per_token(2) // WORKERS  # type: ignore[union-attr]
            slots = settings.slots(block_bytes=block_bytes, chunk_blocks=16, workers=WORKERS)
            assert slots * 16 * block_bytes * WORKERS == settings.cpu_bytes_to_use
            return slots * 16 * block_bytes * WORKERS
        case "LMCacheConnectorV1":
            return WORKERS * int(float(server.variable("LMCACHE_MAX_LOCAL_CPU_SIZE") or 0) * GIB)
        case "OffloadingConnector":
            return int(extra["cpu_bytes_to_use"])
        case None:
            assert server.flag("kv-offloading-backend") == "native"
            return int(server.flag("kv-offloading-size") or 0) * GIB
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_memory_is_the_engine_the_cache_and_shm(folder: Path) -> None:
    server = model_server(build(folder))
    assert server.flag("tensor-parallel-size") == str(WORKERS)
    assert cache_bytes(server) == CACHE_GIB * GIB
    resources = server.container["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    headroom = CACHE_GIB // 4 if "kvengine-connector" in folder.parts else 0
    assert amount(resources["limits"]["memory"]) == (ENGINE_GIB + CACHE_GIB + headroom + SHM_GIB) * GIB
    in_shm = folder.name == "offloading-connector" or {"offloading-connector", "llm-d-fs-connector"} & set(folder.parts)
    assert server.shm == (SHM_GIB + (CACHE_GIB if in_shm else 0)) * GIB, "vLLM keeps its CPU tier in /dev/shm"
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == str(WORKERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_pools_of_the_guides_select_the_pods(folder: Path) -> None:
    server = model_server(build(folder))
    labels = server.pod["metadata"]["labels"]
    assert labels.items() >= server.deployment["spec"]["selector"]["matchLabels"].items()
    assert labels["llm-d.ai/inferenceServing"] == labels["llm-d.ai/inference-serving"] == "true"
    assert labels["llm-d.ai/role"] == "decode"
    of_storage = bool(set(WITH_FILES) & set(folder.parts)) and "gpu" in folder.parts
    assert labels["llm-d.ai/guide"] == f"tiered-prefix-cache-{'storage' if of_storage else 'cpu'}"
    (port,) = server.container["ports"]
    assert port == {"name": "modelserver", "containerPort": 8000}


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_every_container_is_confined_and_has_its_resources(folder: Path) -> None:
    spec = model_server(build(folder)).pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
        assert ("runAsUser" in security) == (container["name"] == "files-storage"), "OpenShift chooses the user"


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_engine_serves_on_while_proxies_learn_of_its_end(folder: Path) -> None:
    server = model_server(build(folder))
    program, seconds = server.container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert 0 < int(seconds) < server.pod["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_missing_token_of_hugging_face_stops_no_pod(folder: Path) -> None:
    (token,) = (each for each in model_server(build(folder)).container["env"] if each["name"] == "HF_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "llm-d-hf-token", "key": "HF_TOKEN", "optional": True}


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "kvengine-connector" in f.parts], ids=named)
def test_kvengine_is_copied_to_where_python_looks_for_it(folder: Path) -> None:
    server = model_server(build(folder))
    (init,) = server.pod["spec"]["initContainers"]
    *module, target = init["command"]
    assert module == ["python", "-m", "kvengine.install"]
    assert server.variable("PYTHONPATH") == target
    for container in (init, server.container):
        assert target in [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "kvengine"]
    transfer = server.transfer()
    assert transfer["kv_connector_module_path"] == "kvengine.connector"
    assert transfer["kv_load_failure_policy"] == "recompute"


def images(folder: Path) -> set[str]:
    """The images of the pods of a folder."""
    pod = model_server(build(folder)).pod["spec"]
    return {each["image"] for each in (*pod["containers"], *pod.get("initContainers", ()))}


def test_every_image_is_changed_in_one_place(tmp_path: Path) -> None:
    copied = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, copied)
    place = copied / "modelserver" / "components" / "images" / "kustomization.yaml"
    place.write_text(
        re.sub(r"newName: (.*)\n    newTag: .*", r"newName: mine.example/\1\n    newTag: own", place.read_text())
    )
    before = set.union(*map(images, FOLDERS))
    after = set.union(*(images(copied / folder.relative_to(MANIFESTS)) for folder in FOLDERS))
    assert after == {f"mine.example/{image.partition(':')[0]}:own" for image in before}
    assert "tierwise/tierwise:0.1.0" in before


@pytest.mark.parametrize("variant", WITH_FILES)
@pytest.mark.parametrize("part", ["base", "gke"])
def test_the_variants_with_files_use_the_claim(variant: str, part: str) -> None:
    server = model_server(build(ENGINES / variant / part))
    volume = server.volume("files-storage")
    claim = yaml.safe_load((MANIFESTS / "modelserver" / "pvc.yaml").read_text())
    assert volume
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    inits = [each["name"] for each in server.pod["spec"].get("initContainers", ())]
    assert inits == (["files-storage"] if part == "gke" else [])


@pytest.mark.parametrize("variant", VARIANTS)
def test_gke_switches_the_tuner_of_nccl_off(variant: str) -> None:
    assert model_server(build(ENGINES / variant / "gke")).variable("NCCL_TUNER_PLUGIN") == "none"
    assert model_server(build(ENGINES / variant / "base")).variable("NCCL_TUNER_PLUGIN") is None


@pytest.mark.parametrize(("storage_class", "written"), [("", None), ("lustre", "lustre"), ("efs-sc", "efs-sc")])
def test_the_claim_has_the_storage_class_of_the_environment(storage_class: str, written: str | None) -> None:
    if shutil.which("envsubst") is None:
        pytest.skip("envsubst is not installed here (Debian's package gettext-base)")
    text = (MANIFESTS / "modelserver" / "pvc.yaml").read_text()
    environment = {**os.environ, "STORAGE_CLASS": storage_class}
    claim = subprocess.run(["envsubst"], input=text, capture_output=True, text=True, check=True, env=environment)
    spec = yaml.safe_load(claim.stdout)["spec"]
    assert spec["storageClassName"] == written
    assert spec["accessModes"] == ["ReadWriteMany"]


def test_the_monitor_finds_the_port_of_the_pods() -> None:
    (monitor,) = build(MANIFESTS / "modelserver" / "components" / "monitoring")
    server = model_server(build(MANIFESTS / "modelserver" / "base"))
    assert server.pod["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in server.container["ports"]]
