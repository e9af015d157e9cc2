from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import yaml

from epp.errors import ConfigError
from epp.lab.fleet import workload
from epp.lab.fleet.arrivals import Sessions
from epp.lab.fleet.lengths import Distribution, Shape, tokens
from epp.lab.fleet.prompts import Ask
from epp.lab.fleet.stages import StagePlan, stages_of

ROWS = {  # groups, prompts in each, system, question, output; source: the guides' own numbers
    "high-cache": (45, 10, 30000, 256, 1024),
    "low-cache": (45, 10, 8000, 256, 1024),
    "storage-30k": (50, 50, 30000, 256, 1024),
    "storage-50k": (50, 50, 50000, 256, 1024),
    "storage-70k": (50, 50, 70000, 256, 1024),
    "ladder-16k": (250, 5, 16000, 256, 256),
}


def asks_of(plan: StagePlan) -> list[Ask]:
    """Return the requests of ``plan`` in the order of their arrival if each response came at once."""
    waiting = [arriving.ask for arriving in plan.source.begin()]
    served = []
    while waiting:
        ask = waiting.pop(0)
        served.append(ask)
        waiting += [arriving.ask for arriving in plan.source.ended(ask)]
    return served


def written(tmp_path: Path, **changes: object) -> Path:
    config = {
        "load": {"type": "concurrent", "stages": [{"num_requests": 6, "concurrency_level": 2}]},
        "data": {"type": "shared_prefix", "shared_prefix": {"num_groups": 2, "num_prompts_per_group": 2}},
        **changes,
    }
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_preset_has_the_shape_of_its_row(name: str) -> None:
    groups, prompts, system, question, output = ROWS[name]
    asks = [ask for stage in stages_of(workload.choose(name), 1) for ask in asks_of(stage)]
    assert {ask.parts[0].tokens for ask in asks} == {system}
    assert {ask.parts[1].tokens for ask in asks} == {question}
    assert {ask.output_tokens for ask in asks} == {output}
    assert len({ask.parts[0] for ask in asks}) == groups
    distinct = Counter(asks)
    assert len(distinct) == groups * prompts
    assert max(distinct.values()) - min(distinct.values()) <= 1  # one shuffled order, again and again


@pytest.mark.parametrize("name", sorted(workload.PRESETS))
def test_every_preset_has_the_blocks_that_inference_perf_needs(name: str) -> None:
    config = yaml.safe_load(workload.PRESETS[name].read_text())
    assert {"load", "data", "api", "server", "tokenizer", "report"} == set(config)
    assert config["server"]["ignore_eos"] is True  # else answers are shorter than output_len
    assert config["api"]["streaming"] is True  # else there is no TTFT


def test_the_ladder_has_the_rates_and_the_rest_of_its_table() -> None:
    config = workload.choose("ladder-16k")
    stages = stages_of(config, 1)
    assert [stage.rate for stage in stages] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [stage.source.requests for stage in stages] == [60 * rate for rate in (5, 10, 15, 20, 25, 30, 35, 40)]
    assert config.load.interval == 60


def test_a_seed_decides_the_order_and_the_times() -> None:
    def told(seed: int) -> list[object]:
        return [list(stage.source.begin()) for stage in stages_of(workload.choose("ladder-16k"), seed)]

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_poisson_arrivals_come_at_their_rate_and_constant_ones_evenly(tmp_path: Path) -> None:
    gaps = {}
    for kind in ("poisson", "constant"):
        load = {"type": kind, "stages": [{"rate": 50, "duration": 100}]}
        stage = stages_of(workload.choose(str(written(tmp_path, load=load))), 1)[0]
        times = [arriving.delay_s for arriving in stage.source.begin()]
        assert len(times) == 5000
        gaps[kind] = [after - before for before, after in pairwise(times)]
    assert gaps["constant"] == pytest.approx([0.02] * 4999)
    assert sum(gaps["poisson"]) / 4999 == pytest.approx(0.02, rel=0.05)
    assert sum(gap > 0.02 for gap in gaps["poisson"]) / 4999 == pytest.approx(0.368, abs=0.03)  # 1 / e


def test_newer_names_of_keys_are_read_too(tmp_path: Path) -> None:
    shared = {"num_unique_system_prompts": 3, "num_users_per_system_prompt": 2}
    path = written(tmp_path, data={"type": "shared_prefix", "shared_prefix": shared})
    assert len(set(asks_of(stages_of(workload.choose(str(path)), 1)[0]))) == 6


def test_a_conversations_turns_repeat_all_that_was_said() -> None:
    stage = stages_of(workload.choose("agents"), 1)[0]
    turns: dict[str, list[Ask]] = {}
    for ask in asks_of(stage):
        turns.setdefault(ask.session, []).append(ask)
    assert sum(map(len, turns.values())) == 2000
    assert max(map(len, turns.values())) > 10
    for session in turns.values():
        for before, after in pairwise(session):
            said = len(before.parts)
            assert after.parts[:said] == before.parts
            assert after.parts[said].content == before.answer
            assert after.parts[said].tokens == before.output_tokens
            assert after.prompt_tokens + after.output_tokens <= 40_000
    assert len({session[0].parts[0] for session in turns.values()}) == 1  # one system prompt for all
    assert len({session[0].parts[1] for session in turns.values()}) > 100  # and one of each one's own


def test_conversations_begin_anew_when_there_are_too_few(tmp_path: Path) -> None:
    fixed = {"type": "fixed", "min": 1, "max": 9, "mean": 3}
    spoken = {"num_conversations": 2, "turns_per_conversation": fixed}
    path = written(tmp_path, data={"type": "conversation_replay", "conversation_replay": spoken})
    stage = stages_of(workload.choose(str(path)), 1)[0]
    assert isinstance(stage.source, Sessions)
    assert stage.source.requests == 6
    load = {"type": "concurrent", "stages": [{"num_requests": 12, "concurrency_level": 1}]}
    path = written(tmp_path, load=load, data={"type": "conversation_replay", "conversation_replay": spoken})
    asks = asks_of(stages_of(workload.choose(str(path)), 1)[0])
    assert [ask.parts for ask in asks[:6]] == [ask.parts for ask in asks[6:]]
    assert {ask.session for ask in asks[:6]}.isdisjoint({ask.session for ask in asks[6:]})


def test_a_larger_fleet_has_as_much_to_do_for_each_endpoint() -> None:
    config = workload.scaled(workload.choose("high-cache"), 8.0)
    asks = asks_of(stages_of(config, 1)[0])
    assert len(asks) == 8 * 450
    assert len({ask.parts[0] for ask in asks}) == 8 * 45
    assert config.load.stages[0].concurrency_level == 8 * 45
    assert [s.rate for s in stages_of(workload.scaled(workload.choose("ladder-16k"), 2.0), 1)][:2] == [10, 20]


@pytest.mark.parametrize("shape", list(Shape))
def test_lengths_stay_within_their_bounds_and_near_their_mean(shape: Shape) -> None:
    random = Random(1)
    distribution = Distribution(type=shape, min=100, max=900, mean=500, std_dev=100)
    drawn = [tokens(distribution, random) for _ in range(4000)]
    assert 100 <= min(drawn) <= max(drawn) <= 900
    assert sum(drawn) / len(drawn) == pytest.approx(500, rel=0.03)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"load": {"type": "concurrent"}}, "load.stages: none; write at least one"),
        ({"load": {"type": "concurrent", "stages": [{"rate": 1, "duration": 1}]}}, r"load.stages\[0\]: a stage of"),
        ({"load": {"type": "poisson", "stages": [{"num_requests": 1}]}}, "has rate and duration, and nothing else"),
        ({"load": {"type": "concurent", "stages": []}}, "load.type: 'concurent' is none of"),
        ({"load": {"type": "trace_replay"}}, "does not go with data.type shared_prefix"),
        ({"load": {"type": "poisson", "stages": [{"rate": 0, "duration": 1}]}}, "rate"),
        ({"load": {"type": "concurrent", "sweep": {}}}, "load.sweep: unknown field"),
        ({"data": {"type": "shared_prefix"}}, "data.shared_prefix: missing"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"num_group": 1}}}, "did you mean num_groups"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"enable_multi_turn_chat": True}}}, "is not simulated"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"output_len": 0}}}, "output_len"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"system_prompt_len": 1 << 30}}}, "system_prompt_len"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"output_len": {"max": 1 << 30}}}}, "max 1073741824; 0"),
        ({"data": {"type": "shared_prefix", "shared_prefix": {"output_len": {"mean": 1e300}}}}, "mean: is 1e.300; at"),
        (
            {"data": {"type": "shared_prefix", "shared_prefix": {"num_groups": 9000, "num_prompts_per_group": 9000}}},
            "9,000 groups of 9,000 prompts; at most 10,000,000 in all",
        ),
        (
            {"load": {"type": "poisson", "stages": [{"rate": 1e6, "duration": 60}]}},
            r"load.stages\[0\]: 1e.06 requests/s for 60 s are more than the 10,000,000",
        ),
        ({"load": {"type": "poisson", "stages": [{"rate": float("inf"), "duration": 1}]}}, "rate"),
        ({"lod": {}}, "lod: unknown field; did you mean load"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_file_and_key(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(ConfigError, match=sentence) as caught:
        workload.choose(str(path))
    assert str(caught.value).startswith(f"{path}: ")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean high-cache"):
        workload.choose("hig-cache")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        workload.choose("nowhere.yaml")


WRITTEN_BY_INFERENCE_PERF = """\
api: {type: completion, streaming: true, headers: null, slo_unit: null}
data:
  type: shared_prefix
  path: null
  corpus_file_path: null
  input_distribution: null
  output_distribution: null
  shared_prefix:
    num_unique_system_prompts: 40
    num_users_per_system_prompt: 6
    system_prompt_len: 3000
    question_len: {min: 10, max: 90, mean: 50.0, std_dev: 10.0, total_count: null, type: normal, variance: 100.0,
                   skew: 0.0}
    output_len: 12
    seed: null
    question_distribution: null
    output_distribution: null
    enable_multi_turn_chat: false
    multimodal: null
  multimodal: null
  trace: null
  otel_trace_replay: null
  weka_trace_replay: null
  conversation_replay: null
load:
  type: concurrent
  interval: 1.0
  stages:
  - {num_requests: 240, concurrency_level: 12, rate: 240.0, duration: 1}
  sweep: null
  num_workers: 4
  worker_max_concurrency: 100
  worker_max_tcp_connections: 2500
  trace: null
  circuit_breakers: []
  request_timeout: null
  request_retries: 0
  request_retry_backoff_sec: 0.5
  stage_teardown_grace_seconds: 120.0
  lora_traffic_split: null
  base_seed: 1795321000000
metrics: null
report: {request_lifecycle: {summary: true, per_stage: true, per_request: false}}
storage: {local_storage: {path: reports, report_file_prefix: null}, google_cloud_storage: null}
server: {type: vllm, model_name: m, base_url: "http://localhost:8081", ignore_eos: true, api_key: null}
tokenizer: null
circuit_breakers: null
"""
"""The keys of version 0.7, which fills in a rate and a duration for concurrent stages before it writes them."""


def test_the_file_that_inference_perf_writes_beside_its_results_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(WRITTEN_BY_INFERENCE_PERF)
    (stage,) = stages_of(workload.choose(str(path)), 1)
    asks = asks_of(stage)
    assert (len(asks), stage.concurrency) == (240, 12)
    assert len({ask.parts[0] for ask in asks}) == 40
    assert 40 < sum(ask.parts[1].tokens for ask in asks) / 240 < 60


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("multimodal: null", "multimodal: {}", "data.shared_prefix.multimodal: unknown field"),
        ("variance: 100.0", "variance: 9.0", "variance: is 9, and std_dev 10, whose square is 100"),
        ("skew: 0.0", "skew: 2.0", "skewed distributions are not simulated"),
        ("sweep: null", "sweep: {type: linear}", "load.sweep: unknown field"),
        ("  trace: null\n  circuit", "  trace: {file: t.jsonl}\n  circuit", "load.trace: is t.jsonl, and requests"),
    ],
)
def test_what_is_written_there_and_not_simulated_is_refused_by_its_key(
    tmp_path: Path, before: str, after: str, sentence: str
) -> None:
    path = tmp_path / "config.yaml"
    assert before in WRITTEN_BY_INFERENCE_PERF
    path.write_text(WRITTEN_BY_INFERENCE_PERF.replace(before, after, 1))
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        workload.choose(str(path))
