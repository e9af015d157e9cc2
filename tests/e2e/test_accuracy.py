"""The picker's predictions are compared with what engines had cached: client, Envoy, picker, simulated engines."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from epp.lab.engine.cli import bind, endpoints
from epp.lab.engine.preset import Preset
from epp.metrics.gauges import Reading
from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import Background
from tests.e2e.site.router import LOOPBACK, Router, router
from tests.epp.lab.engine.bench import tiny

pytestmark = pytest.mark.e2e
PRESET = tiny(gpu_blocks=512, cpu_blocks=4096, max_model_len=8192, max_batched_tokens=8192, block_tokens=16)
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}
  - {type: approx-prefix-cache-producer, name: cpu-prefix-cache-producer, parameters: {lruCapacityPerServer: 4096}}
  - {type: prefix-cache-scorer, name: gpu, parameters: {prefixMatchInfoProducerName: gpu-prefix-cache-producer}}
  - {type: prefix-cache-scorer, name: cpu, parameters: {prefixMatchInfoProducerName: cpu-prefix-cache-producer}}
schedulingProfiles:
  - name: default
    plugins: [{pluginRef: queue-scorer}, {pluginRef: gpu, weight: 2}, {pluginRef: cpu, weight: 2}]
"""
PROMPTS = [f"{name:04} " * 1024 for name in range(16)]  # 1280 tokens of four bytes, 20 of the index's blocks


@dataclass
class Address:
    address: str


@contextmanager
def simulated(loop: Background, count: int, preset: Preset) -> Iterator[list[Address]]:
    """Run engines that are a thousand times as fast, and yield their addresses."""
    sockets = bind(LOOPBACK, 0, count)
    names = [Address(f"{LOOPBACK}:{sock.getsockname()[1]}") for sock in sockets]
    with serving(loop, sockets, preset):
        yield names


@contextmanager
def serving(loop: Background, sockets: list[socket.socket], preset: Preset) -> Iterator[None]:
    stack = AsyncExitStack()
    loop.run(stack.enter_async_context(endpoints(preset, sockets, speed=1000.0)))
    try:
        yield
    finally:
        loop.run(stack.aclose())


def metric(running: Router, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by the values of their labels, in the order of the labels' names."""
    with urlopen(f"http://{LOOPBACK}:{running.picker.metrics_port}/metrics", timeout=15) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return {
        tuple([value for _, value in sorted(sample.labels.items())]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def ask(running: Router, prompt: str, **more: Any) -> int:
    """Send the prompt and return the tokens of it that the engine had cached."""
    status, text = running.ask(
        "/completions",
        json.dumps({"model": "m", "prompt": prompt, "max_tokens": 1, **more}).encode(),
        {"content-type": "application/json"},
    )
    assert status == 200, text
    return int(json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"])


BLIND = CONFIG.replace("parameters: {lru", "parameters: {followHorizon: false, lru").replace(
    "name: gpu-prefix-cache-producer}", "name: gpu-prefix-cache-producer, parameters: {followHorizon: false}}", 1
)
"""The same configuration, without the horizon that engines report."""


def by_tier(running: Router, name: str) -> dict[str, float]:
    """Return a metric's sums over the modes: an endpoint is approximate until its engine has reported its horizon."""
    found: dict[str, float] = {}
    for (_, tier), value in metric(running, name).items():
        found[tier] = found.get(tier, 0.0) + value
    return found


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"response_mode": ResponseMode.FULL, "config_text": CONFIG}, "horizon"),
        ({"response_mode": ResponseMode.LEAN, "sample_rate": 1.0, "config_text": BLIND}, "approximate"),
    ],
    ids=["full, horizon", "lean, approximate"],
)
def test_what_engines_had_cached_is_what_was_predicted(loop: Background, options: dict[str, Any], known: str) -> None:
    with simulated(loop, 2, PRESET) as engines, router(loop, engines, ask_kvengine=True, **options) as running:
        loop.until(lambda: all(c.tiers for c in running.picker.pool.candidates()), "the engines have told their tiers")
        for _ in range(3):
            for prompt in PROMPTS:
                ask(running, prompt)
        running.settle()
        prompts, error = (by_tier(running, f"tierwise_prediction_{what}_tokens_total") for what in ("prompt", "error"))
        assert prompts == dict.fromkeys(("total", "gpu", "cpu"), 48 * 1280)
        accuracy = {tier: 1 - error[tier] / prompts[tier] for tier in prompts}
        assert accuracy["total"] > 0.95, accuracy
        # Engines that run a thousand times as fast evict from GPU memory between two reads of their horizons.
        assert min(accuracy.values()) > (0.95 if known == "approximate" else 0.5), accuracy
        assert metric(running, "tierwise_prediction_accuracy")[known, "total"] > 0.95
        assert by_tier(running, "tierwise_actual_cached_tokens_total")["total"] > 31 * 1200
        sent = metric(running, "tierwise_endpoint_picked_prompt_tokens_total")
        assert set(sent) == {(engine.address,) for engine in engines}
        assert sum(sent.values()) == 48 * 1280
        assert set(metric(running, "tierwise_endpoint_engine_cached_tokens_total")) == {
            (engine.address, tier) for engine in engines for tier in ("gpu", "cpu")
        }


def test_a_cache_that_is_lost_behind_the_pickers_back_shows(loop: Background) -> None:
    with (
        simulated(loop, 1, replace(PRESET, cpu_blocks=0)) as (engine,),
        router(loop, [engine], config_text=BLIND, response_mode=ResponseMode.FULL) as running,
    ):
        ask(running, PROMPTS[0])
        running.settle()
        with urlopen(f"http://{engine.address}/reset_prefix_cache", data=b"", timeout=15):
            pass
        ask(running, PROMPTS[0][:4096] + "!" * 1024)
        running.settle()
        assert metric(running, "tierwise_prediction_error_tokens_total") == {("approximate", "total"): 1024}
        assert metric(running, "tierwise_prediction_accuracy") == {("approximate", "total"): 1 - 1024 / 2560}


@pytest.mark.parametrize("interval_s", [0.0, 60.0])
def test_a_restarted_picker_sends_prompts_where_they_were(loop: Background, tmp_path: Path, interval_s: float) -> None:
    file = tmp_path / "index"
    options: dict[str, Any] = {"config_text": CONFIG, "index_snapshot": file, "index_snapshot_interval": interval_s}
    with simulated(loop, 4, PRESET) as engines:
        with router(loop, engines, **options) as running:
            assert [ask(running, prompt) for prompt in PROMPTS] == [0] * len(PROMPTS)
            running.settle()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with router(loop, engines, **options) as running:
            loop.until(lambda: file.exists() == bool(interval_s), "what is not written again is old from now on")
            loop.until(
                lambda: metric_now(running, "tierwise_index_snapshot_endpoints")["restored",] == 4,
                "all endpoints are restored",
            )
            assert [cached > 1200 for cached in [ask(running, prompt) for prompt in PROMPTS]] == [True] * len(PROMPTS)


def test_what_restarted_engines_held_is_not_believed(loop: Background, tmp_path: Path) -> None:
    options: dict[str, Any] = {"config_text": CONFIG, "index_snapshot": tmp_path / "index"}
    sockets = bind(LOOPBACK, 0, 1)
    port = sockets[0].getsockname()[1]
    engines = [Address(f"{LOOPBACK}:{port}")]
    with serving(loop, sockets, PRESET), router(loop, engines, **options) as running:
        ask(running, PROMPTS[0])
        running.settle()
    with serving(loop, bind(LOOPBACK, port, 1), PRESET), router(loop, engines, **options) as running:
        loop.until(
            lambda: metric_now(running, "tierwise_index_snapshot_endpoints")["another-engine",] == 1,
            "the engine is known to be another one",
        )
        assert ask(running, PROMPTS[0]) == 0


def metric_now(running: Router, name: str) -> dict[tuple[str, ...], float]:
    """Return what ``metric`` does, read on the picker's own loop."""
    readings = [reading for source in running.picker.telemetry.sources for reading in source()]
    return {
        labels: value
        for reading in readings
        if isinstance(reading, Reading) and reading.name == name
        for labels, value in reading.samples
    }
