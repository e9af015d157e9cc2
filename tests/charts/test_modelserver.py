"""The chart of vLLM's pods: one number, and what follows from it, calculated a second time without any template."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epp.catalog.models import find
from epp.scrape.reading.tiers import settings_in
from kvengine.limits import RAM_SHARE, grant
from kvengine.settings import read_settings
from scorers.base import Tier
from tests.cluster.environment import Unavailable, program
from tests.kustomize.kubectl import GIB, ROOT, ModelServer, Object, amount, model_server

CHART = ROOT / "manifests" / "charts" / "modelserver"
MODEL = "Qwen/Qwen3-32B"
ENGINE_GIB, SHM_GIB = 80, 20
"""What the chart's values have for vLLM itself and for /dev/shm."""


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        path = program("helm")
    except Unavailable as reason:
        pytest.skip(str(reason))
    return subprocess.run([path, *words], capture_output=True, text=True, check=False, timeout=60)


def rendered(values: dict[str, Any]) -> list[Object]:
    """What is installed with these values."""
    with tempfile.TemporaryDirectory() as folder:
        return template(CHART, Path(folder), values)


def template(chart: Path, folder: Path, values: dict[str, Any]) -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    ran = helm("template", "llm-d-model-server", str(chart), "-f", str(file))
    assert ran.returncode == 0, ran.stderr
    return [each for each in yaml.safe_load_all(ran.stdout) if each]


def notes(values: dict[str, Any]) -> str:
    """What is printed after an installation; `helm template` does not, so they are made an object for it."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder, "modelserver")
        shutil.copytree(CHART, chart)
        text = (chart / "templates" / "NOTES.txt").read_text()
        defined = f'{{{{- define "the.notes" -}}}}{text}{{{{- end -}}}}'
        wrapped = f'{defined}\nkind: Notes\ntext: {{{{ include "the.notes" . | toJson }}}}\n'
        (chart / "templates" / "notes.yaml").write_text(wrapped)
        (made,) = (each for each in template(chart, Path(folder), values) if each["kind"] == "Notes")
        return made["text"]


def server(values: dict[str, Any]) -> ModelServer:
    return model_server(rendered(values))


def refusal(values: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "values.yaml")
        file.write_text(json.dumps(values))
        ran = helm("template", "llm-d-model-server", str(CHART), "-f", str(file))
    assert ran.returncode != 0, ran.stdout
    return ran.stderr


def sizes(connector: str, cpu: str, tensor: int, data: int) -> dict[str, Any]:
    return {"cache": {"connector": connector, "cpu": cpu}, "parallelism": {"tensor": tensor, "data": data}}


CPU = st.one_of(
    st.integers(1, 2000).map(lambda gib: f"{gib}Gi"),
    st.integers(1024, 2_000_000).map(lambda mib: f"{mib}Mi"),
    st.integers(10, 4000).map(lambda tenths: f"{tenths / 10}Gi"),
    st.integers(2, 2000).map(lambda gb: f"{gb}G"),
)
CHEAP = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@CHEAP
@given(cpu=CPU, tensor=st.sampled_from([1, 2, 3, 4, 8]), data=st.sampled_from([1, 2, 3, 8]))
def test_one_number_is_what_every_worker_of_kvengine_takes(cpu: str, tensor: int, data: int) -> None:
    cache, workers = amount(cpu), tensor * data
    pod = server(sizes("kvengine", cpu, tensor, data))
    read, warnings = read_settings(pod.transfer()["kv_connector_extra_config"], {})
    assert not warnings
    slot_bytes = 256 * 1024  # of one worker
    slots = read.slots(block_bytes=slot_bytes // 16, chunk_blocks=16, workers=tensor)
    assert slots == cache // data // tensor // slot_bytes
    assert pod.flag("tensor-parallel-size") == str(tensor)
    assert pod.flag("data-parallel-size") == (str(data) if data > 1 else None)
    resources = pod.container["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == str(workers)
    memory = amount(resources["limits"]["memory"])
    assert memory == amount(resources["requests"]["memory"])
    exact = (ENGINE_GIB + SHM_GIB) * GIB + cache / RAM_SHARE
    assert exact - 1 <= memory <= exact + (1 << 20)
    assert pod.shm == SHM_GIB * GIB, "kvengine's memory is not in /dev/shm"


@CHEAP
@given(cpu=CPU, tensor=st.sampled_from([1, 2, 4, 8]), data=st.sampled_from([1, 2, 8]))
def test_the_container_has_the_memory_that_kvengine_asks_for_however_much_vllm_uses(
    cpu: str, tensor: int, data: int
) -> None:
    """The engine's own check of its cgroup, while vLLM already uses all that the values give it."""
    pod = server(sizes("kvengine", cpu, tensor, data))
    read, _ = read_settings(pod.transfer()["kv_connector_extra_config"], {})
    assert read.cpu_bytes_to_use is not None
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "sys/fs/cgroup")
        folder.mkdir(parents=True)
        (folder / "memory.max").write_text(str(amount(pod.container["resources"]["limits"]["memory"])))
        (folder / "memory.current").write_text(str((ENGINE_GIB + SHM_GIB) * GIB))
        asked = read.cpu_bytes_to_use // tensor
        granted = grant(asked, workers_here=tensor * data, pinned=False, root=Path(root))
    assert (granted.size_bytes, granted.sentence) == (asked, None)


@CHEAP
@given(cpu=CPU, tensor=st.sampled_from([1, 2, 8]), data=st.sampled_from([1, 2, 3]))
def test_one_number_is_the_flag_of_vllms_own_connector_and_fits_into_shm(cpu: str, tensor: int, data: int) -> None:
    cache = amount(cpu)
    pod = server(sizes("offloading", cpu, tensor, data))
    assert pod.flag("kv-offloading-backend") == "native"
    flag = float(pod.flag("kv-offloading-size") or 0)
    assert flag <= cache / data / GIB < flag + 0.0001 + 1e-9
    base = (ENGINE_GIB + SHM_GIB) * GIB
    assert amount(pod.container["resources"]["limits"]["memory"]) == math.ceil((base + cache) / 2**20) * 2**20
    assert pod.shm == math.ceil((SHM_GIB * GIB + cache) / 2**20) * 2**20
    # vLLM writes its settings on its metrics page, and the picker computes the capacity from them.
    page = (
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="9",kv_offloading_size="{flag}",'
        f'kv_offloading_backend="native"}} 1.0\nvllm:num_requests_running{{model_name="{MODEL}"}} 0\n'
    )
    token_bytes = find(MODEL).kv_bytes_per_token(2)  # type: ignore[union-attr]
    assert settings_in(page.encode())[Tier.CPU].capacity_tokens == int(flag * GIB / token_bytes)


@CHEAP
@given(cpu=CPU, tensor=st.sampled_from([1, 2, 8]), data=st.sampled_from([1, 2, 3]))
def test_one_number_is_the_variable_of_each_worker_of_lmcache(cpu: str, tensor: int, data: int) -> None:
    cache = amount(cpu)
    pod = server(sizes("lmcache", cpu, tensor, data))
    each = float(pod.variable("LMCACHE_MAX_LOCAL_CPU_SIZE") or 0)
    assert each <= cache / tensor / data / GIB < each + 0.0001 + 1e-9
    base = (ENGINE_GIB + SHM_GIB) * GIB
    assert amount(pod.container["resources"]["limits"]["memory"]) == math.ceil((base + cache) / 2**20) * 2**20
    assert pod.shm == SHM_GIB * GIB
    assert pod.container["image"].startswith("lmcache/")


def test_without_a_connector_no_memory_is_taken_for_kv() -> None:
    pod = server(sizes("none", "100Gi", 1, 1))
    assert pod.flag("kv-transfer-config") is pod.flag("kv-offloading-size") is None
    assert amount(pod.container["resources"]["limits"]["memory"]) == (ENGINE_GIB + SHM_GIB) * GIB
    assert "initContainers" not in pod.pod["spec"]


def test_kvengine_is_copied_to_where_python_looks_for_it() -> None:
    pod = server({})
    (init,) = pod.pod["spec"]["initContainers"]
    *module, target = init["command"]
    assert module == ["python", "-m", "kvengine.install"]
    assert pod.variable("PYTHONPATH") == target
    assert pod.transfer()["kv_connector_module_path"] == "kvengine.connector"
    assert pod.transfer()["kv_load_failure_policy"] == "recompute"
    assert init["image"] == f"tierwise/tierwise:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"


def test_other_settings_of_kvengine_are_passed_on() -> None:
    pod = server({"kvengine": {"settings": {"chunk_size": 64, "eviction_policy": "arc"}}})
    read, _ = read_settings(pod.transfer()["kv_connector_extra_config"], {})
    assert (read.chunk_size, read.eviction_policy, read.cpu_bytes_to_use) == (64, "arc", 100 * GIB)


def test_the_labels_are_those_that_pools_select() -> None:
    values = {"role": "prefill", "labels": {"llm-d.ai/guide": "mine"}}
    deployment = server(values).deployment
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= {"llm-d.ai/role": "prefill", "llm-d.ai/guide": "mine"}.items()
    assert labels.items() >= deployment["spec"]["selector"]["matchLabels"].items()
    assert 'llm-d.ai/guide: "mine"' in notes(values)


def test_the_probes_wait_for_a_model_that_loads_for_an_hour() -> None:
    container = server({}).container
    startup, ready, live = (container[f"{name}Probe"] for name in ("startup", "readiness", "liveness"))
    assert (startup["httpGet"]["path"], startup["periodSeconds"] * startup["failureThreshold"]) == ("/v1/models", 3600)
    assert (ready["httpGet"]["path"], ready["periodSeconds"], ready["failureThreshold"]) == ("/v1/models", 5, 3)
    assert (live["httpGet"]["path"], live["periodSeconds"], live["failureThreshold"]) == ("/health", 10, 3)


@pytest.mark.parametrize(
    ("connector", "sentence"),
    [
        ("kvengine", "125Gi"), ("kvengine", "leave lruCapacityPerServer out"),
        ("offloading", "leave lruCapacityPerServer out"),
        ("lmcache", "write lruCapacityPerServer"),
        ("none", "No KV is kept"),
    ],
)  # fmt: skip
def test_the_notes_say_what_the_picker_will_know(connector: str, sentence: str) -> None:
    assert sentence in notes({"cache": {"connector": connector, "cpu": "125Gi"}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cache": {"cpu": "100GB"}}, ["cache", "cpu"]),
        ({"cache": {"cpu": "-1Gi"}}, ["cache", "cpu"]),
        ({"cache": {"conector": "none"}}, ["cache", "conector"]),
        ({"cache": {"connector": "kvengin"}}, ["cache", "connector"]),
        ({"parallelism": {"tensor": "2"}}, ["parallelism", "tensor"]),
        ({"parallelism": {"tensor": 0}}, ["parallelism", "tensor"]),
        ({"cpu": "100Gi"}, ["cpu"]),
        ({"labels": {"llm-d.ai/inferenceServing": True}}, ["labels", "inferenceServing"]),
        ({"cache": {"cpu": None}}, ["cache.cpu is empty"]),
        ({"cache": {"cpu": 0}}, ["cache.cpu is empty"]),
        ({"cache": {"cpu": 200}}, ["cache.cpu is 200, which is below 1Gi; write it with its unit, such as 100Gi"]),
        ({"cache": {"cpu": "200"}}, ["cache.cpu is 200, which is below 1Gi"]),
        ({"cache": {"cpu": "200M"}}, ["cache.cpu is 200M, which is below 1Gi"]),
        ({"cache": {"connector": None}}, ["cache.connector is empty"]),
        ({"kvengine": {"settings": {"cpu_bytes_to_use": 1}}}, ["cpu_bytes_to_use", "the size is cache.cpu"]),
        ({"kvengine": {"settings": {"max_local_cpu_size": 1}}}, ["max_local_cpu_size", "the size is cache.cpu"]),
    ],
)
def test_a_wrong_value_fails_before_anything_is_installed(values: dict[str, Any], words: list[str]) -> None:
    text = refusal(values)
    assert all(word in text for word in words), text


def test_the_engine_serves_on_while_proxies_learn_of_its_end() -> None:
    [pod] = [one["spec"]["template"]["spec"] for one in rendered({}) if one["kind"] == "Deployment"]
    [engine] = pod["containers"]
    assert 0 < engine["lifecycle"]["preStop"]["sleep"]["seconds"] < pod["terminationGracePeriodSeconds"]


def test_a_quote_in_an_argument_stays_one_argument() -> None:
    odd = """--hf-overrides={"a": "it's"}"""
    assert server({"args": [odd]}).container["args"][-1] == odd


def test_the_engines_can_do_without_an_accelerator() -> None:
    resources = server({"accelerator": "", "image": {"repository": "vllm/vllm-openai-cpu"}}).container["resources"]
    assert set(resources["limits"]) == {"memory"}


def test_the_monitor_selects_the_pods_of_its_release() -> None:
    objects = rendered({"monitoring": {"enabled": True}})
    (monitor,) = (each for each in objects if each["kind"] == "PodMonitor")
    pod = model_server(objects).pod["metadata"]["labels"]
    assert pod.items() >= monitor["spec"]["selector"]["matchLabels"].items()
