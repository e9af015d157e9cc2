"""From flags to the report: what tiers hold, where workloads live, what is advised."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from epp.catalog.gpu import GIB, GPUS
from epp.catalog.models import MODELS
from epp.errors import ConfigError
from epp.lab.size.endpoint import ReportedFacts
from epp.lab.size.fleet import fleet_of
from epp.lab.size.options import SizeOptions
from epp.lab.size.report import SizeReport, TierPart
from epp.lab.size.sizing import size
from epp.lab.size.workload import Workload

HIGH = Workload(name="high-cache", num_groups=45, system_prompt_len=30_000, concurrency=45)
LOW = replace(HIGH, name="low-cache", system_prompt_len=8000)
SEEDS = SizeOptions(model="Qwen/Qwen3-32B", gpu="h100", ranks=2, endpoints=8, utilization=0.65, gpu_blocks=9271)


def report(options: SizeOptions, workload: Workload | None = None, reported: ReportedFacts | None = None) -> SizeReport:
    return size(fleet_of(options, reported or ReportedFacts()), workload, options)


def tier(sized: SizeReport, name: str) -> TierPart:
    (found,) = [each for each in sized.tiers if each.tier == name]
    return found


def advised(sized: SizeReport) -> dict[str, str]:
    return {advice.setting: advice.value for advice in sized.advice}


def test_the_guides_engines_hold_what_their_blocks_say() -> None:
    gpu = tier(report(SEEDS), "gpu")
    assert (gpu.tokens_per_endpoint, gpu.fleet_tokens) == (148_336, 1_186_688)
    assert gpu.bytes_per_endpoint == 9271 * 4 * 2**20
    assert gpu.source == "--num-gpu-blocks-override"
    assert gpu.low_tokens_per_endpoint == gpu.high_tokens_per_endpoint


@pytest.mark.parametrize(
    ("cpu", "tokens"),
    [
        ({"cpu_bytes": 100 * GIB}, 409_600),
        ({"cpu_bytes": 200 * GIB}, 819_200),
        ({"local_cpu_gib": 50.0}, 409_600),  # of each of two workers
        ({"cpu_bytes": 100 * GIB, "ranks": 4}, 409_600),
        ({"cpu_bytes": 100 * GIB, "kv_dtype": "fp8"}, 819_200),
        ({"cpu_bytes": 2**30, "chunk_tokens": 256}, 4096),
        ({"cpu_bytes": 256 * 262_144 - 1}, 0),
        ({"cpu_bytes": 0}, 0),
    ],
)
def test_cpu_memory_holds_whole_chunks(cpu: dict[str, Any], tokens: int) -> None:
    assert tier(report(replace(SEEDS, **cpu)), "cpu").tokens_per_endpoint == tokens


def test_the_pickers_capacity_is_in_its_own_blocks() -> None:
    sized = report(replace(SEEDS, cpu_bytes=100 * GIB))
    assert advised(sized)["lruCapacityPerServer"] == "25600"
    (why,) = [advice.why for advice in sized.advice if advice.setting == "lruCapacityPerServer"]
    assert "6400 there" in why


def test_the_seeds_workloads_live_where_their_tables_say() -> None:
    """In the published tables CPU offloading gains a fifth on the first workload, and costs 2 % on the second."""
    options = replace(SEEDS, cpu_bytes=100 * GIB)
    high, low = (report(options, workload).workload for workload in (HIGH, LOW))
    assert high is not None
    assert low is not None
    assert high.working_set_tokens == 1_926_000
    assert (high.lives_in, low.lives_in) == ("cpu", "gpu")
    assert low.homes[0].holds_all
    assert 0.5 < high.homes[0].hit_share < 0.9
    assert high.recomputed_share < 0.01
    assert "lives in the cpu tier" in high.sentence
    assert "can add its overhead only" in low.sentence


def test_without_a_tier_below_the_first_of_them_lives_nowhere() -> None:
    sized = report(SEEDS, HIGH).workload
    assert sized is not None
    assert sized.lives_in == "nowhere"
    assert 0.1 < sized.recomputed_share < 0.5
    assert sized.scattered_recomputed_share > sized.recomputed_share


def test_more_requests_than_the_gpu_has_room_for_are_named() -> None:
    sized = report(SEEDS, HIGH).workload
    assert sized is not None
    assert sized.active_tokens_per_endpoint == 6 * 31_280
    assert "about 4 of them run" in sized.sentence


def test_loading_is_worth_it_from_cpu_memory_and_not_from_slow_storage() -> None:
    sized = report(replace(SEEDS, cpu_bytes=100 * GIB, storage_bytes=2**44, storage_bytes_per_s=2e9), HIGH)
    cpu, storage = sized.prices
    assert cpu.load
    assert cpu.break_even_tokens == 0
    assert cpu.load_s == pytest.approx(30_000 * 262_144 / (2 * 64e9 * 0.8))
    assert not storage.load
    assert storage.break_even_tokens is not None
    assert storage.break_even_tokens > 30_000
    assert storage.shared_load_s == pytest.approx(8 * storage.load_s)


@given(bandwidth=st.floats(1e8, 1e11), tokens=st.integers(1, 200_000))
def test_loading_pays_exactly_from_the_break_even_on(bandwidth: float, tokens: int) -> None:
    options = replace(SEEDS, storage_bytes=2**44, storage_bytes_per_s=bandwidth)
    (price,) = report(options, replace(HIGH, system_prompt_len=tokens)).prices
    assume(price.recompute_s > 0.02)  # a step takes the time to read the weights, however short
    assert price.break_even_tokens is not None
    if abs(tokens - price.break_even_tokens) > 1:
        assert price.load == (tokens > price.break_even_tokens)


def test_the_advised_cpu_memory_is_enough_and_in_both_units() -> None:
    sized = report(SEEDS, HIGH)
    settings = advised(sized)
    per_worker = float(settings["max_local_cpu_size"])
    assert int(settings["cpu_bytes_to_use"]) == round(per_worker * 2 * GIB)
    with_it = report(replace(SEEDS, local_cpu_gib=per_worker), HIGH).workload
    assert with_it is not None
    assert with_it.recomputed_share <= 0.01
    assert with_it.lives_in == "cpu"


@pytest.mark.parametrize("cpu", [{}, {"ram_bytes": 1024 * GIB}, {"cpu_bytes": 100 * GIB}])
def test_where_no_cpu_tier_is_advised_the_picker_is_not_told_to_count_one(cpu: dict[str, Any]) -> None:
    found = advised(report(replace(SEEDS, gpu_blocks=None, utilization=0.9, **cpu), LOW))
    assert found["max_local_cpu_size"] == "none"
    assert found.get("lruCapacityPerServer", "none") == "none"


def test_cpu_memory_is_not_advised_where_the_gpu_has_it_all() -> None:
    assert advised(report(SEEDS, LOW))["max_local_cpu_size"] == "none"


def test_kvengine_is_not_advised_for_models_that_it_refuses() -> None:
    sized = report(SizeOptions(model="gpt-oss-120b", gpu="h200", cpu_bytes=100 * GIB))
    settings = advised(sized)
    assert "max_local_cpu_size" not in settings
    assert settings["cpu_bytes_to_use"] == str(100 * GIB)
    assert any("kvengine refuses models with windows" in note for note in sized.notes)


def test_host_memory_bounds_what_is_advised() -> None:
    sized = report(replace(SEEDS, ram_bytes=32 * GIB), HIGH)
    assert float(advised(sized)["max_local_cpu_size"]) * 2 <= (32 - 12) * 0.8
    (why,) = [advice.why for advice in sized.advice if advice.setting == "max_local_cpu_size"]
    assert "more than the host memory leaves" in why


def test_the_advice_on_utilization_says_what_it_holds_and_what_more_would() -> None:
    more = "; 0.95 would hold 332,960, with less left for peaks"
    for utilization, why in (
        (None, "holds 300,560 tokens, vLLM's default" + more),
        (0.65, "holds 300,560 tokens, vLLM's default; 0.65, as given, 138,560" + more),
        (0.95, "holds 332,960 tokens"),
    ):
        sized = report(replace(SEEDS, utilization=utilization))
        assert [a.why for a in sized.advice if a.setting == "--gpu-memory-utilization"] == [why]


def test_utilization_is_advised_at_which_everything_fits() -> None:
    options = replace(SEEDS, gpu_blocks=None)
    wanted = float(advised(report(options, HIGH))["--gpu-memory-utilization"])
    (why,) = [advice.why for advice in report(options, HIGH).advice if advice.setting == "--gpu-memory-utilization"]
    assert "from 0.84 on the whole workload fits" in why
    assert wanted == 0.9
    at = report(replace(options, utilization=0.84), HIGH).workload
    below = report(replace(options, utilization=0.83), HIGH).workload
    assert at is not None
    assert below is not None
    assert (at.homes[0].holds_all, below.homes[0].holds_all) == (True, False)


@pytest.mark.parametrize(("endpoints", "prompts"), [(1, 10), (3, 10), (8, 10), (8, 2), (8, 1), (50, 4)])
def test_requests_that_go_anywhere_seldom_come_back_where_their_group_was(endpoints: int, prompts: int) -> None:
    workload = Workload(num_groups=400, system_prompt_len=1, num_prompts_per_group=prompts)
    random, seen, found = Random(3), set[tuple[int, int]](), 0
    for n in range(workload.requests):
        visit = (n % 400, random.randrange(endpoints))
        found += visit in seen
        seen.add(visit)
    later = workload.requests - 400
    assert workload.revisits(endpoints) == pytest.approx(found / later if later else 1.0, abs=0.03)


# Properties.

MODEL_NAMES = st.sampled_from(sorted(MODELS))


@given(
    name=MODEL_NAMES,
    gpu=st.sampled_from(sorted(GPUS)),
    utilizations=st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
)
def test_more_utilization_never_holds_fewer_tokens(name: str, gpu: str, utilizations: tuple[float, float]) -> None:
    options = SizeOptions(model=name, gpu=gpu)
    try:
        less, more = (
            tier(report(replace(options, utilization=each)), "gpu").tokens_per_endpoint for each in sorted(utilizations)
        )
    except ConfigError:
        return
    assert less <= more


@given(name=MODEL_NAMES, sizes=st.tuples(st.integers(0, 2**42), st.integers(0, 2**42)))
def test_more_cpu_memory_never_holds_fewer_tokens(name: str, sizes: tuple[int, int]) -> None:
    options = SizeOptions(model=name, gpu_blocks=1000)
    less, more = (tier(report(replace(options, cpu_bytes=each)), "cpu").tokens_per_endpoint for each in sorted(sizes))
    assert less <= more


@given(name=st.sampled_from(["Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct"]), power=st.integers(0, 3))
def test_gpus_of_one_endpoint_share_what_a_token_takes(name: str, power: int) -> None:
    ranks = 2**power
    sized = report(SizeOptions(model=name, gpu="b200", ranks=ranks))
    alone = report(SizeOptions(model=name, gpu="b200"))
    assert sized.gpu is not None
    assert alone.gpu is not None
    assert sized.gpu.block_bytes * ranks == alone.gpu.block_bytes
    assert tier(sized, "gpu").tokens_per_endpoint >= ranks * tier(alone, "gpu").tokens_per_endpoint


@given(
    groups=st.integers(1, 500), prompt=st.integers(0, 100_000), more=st.integers(0, 2**40),
    endpoints=st.integers(1, 64), prompts=st.integers(1, 50),
)  # fmt: skip
def test_shares_of_a_workload_add_up_and_memory_only_helps(
    groups: int, prompt: int, more: int, endpoints: int, prompts: int
) -> None:
    workload = Workload(num_groups=groups, system_prompt_len=prompt, num_prompts_per_group=prompts)
    options = replace(SEEDS, endpoints=endpoints, cpu_bytes=20 * GIB)
    less, larger = (report(each, workload).workload for each in (options, replace(options, cpu_bytes=20 * GIB + more)))
    assert less is not None
    assert larger is not None
    for part in (less, larger):
        assert sum(home.hit_share for home in part.homes) + part.recomputed_share == pytest.approx(1)
        assert sum(home.scattered_hit_share for home in part.homes) + part.scattered_recomputed_share == pytest.approx(
            1
        )
        assert all(home.hit_share >= 0 for home in part.homes)
    assert larger.recomputed_share <= less.recomputed_share + 1e-9


# What cannot be sized.


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": None, "gpu": None, "gpu_blocks": None}, "nothing says what to size"),
        ({"model": "qwen3-33b"}, "did you mean Qwen/Qwen3-32B"),
        ({"model": "gpt-5"}, "is not known; give its config.json"),
        ({"model": "mixtral-8x7b"}, "Known by name: Qwen3-0.6B, .*, Mistral-7B-Instruct-v0.3, .*, DeepSeek-R1$"),
        ({"gpu": "h1000"}, "is not known; there are"),
        ({"ranks": 3}, "--tensor-parallel-size=3 does not divide the 64 attention heads"),
        ({"model": "phi-4", "ranks": 4}, "neither divides the 10 KV heads .* choose one of 1, 2, 5, 10, 20, 40$"),
        ({"model": "phi-4", "ranks": 3}, "the 40 attention heads .* choose one of 1, 2, 5, 10, 20, 40$"),
        ({"model": "qwen2.5-7b", "ranks": 8}, "the 28 attention heads .* choose one of 1, 2, 4, 28$"),
        ({"model": "qwen2.5-7b", "ranks": 7}, "the 4 KV heads .* choose one of 1, 2, 4, 28$"),
        ({"ram_bytes": 10 * 2**20}, "--ram=10MiB leaves nothing for KV"),
        ({"ram_bytes": 8 * 10**9}, "--ram=8GB leaves nothing for KV"),
        ({"ram_bytes": 8_000_000_001}, "--ram=8000000001 leaves nothing for KV"),
        ({"model": "llama-3.3-70b", "ranks": 1, "gpu_blocks": None}, "leaves no memory for KV: on each of 1 h100"),
        ({"model": "llama-3.3-70b", "ranks": 1, "gpu_blocks": None}, "take --tensor-parallel-size=2"),
        ({"model": "llama-3.1-405b", "ranks": 1, "gpu": "l4", "gpu_blocks": None}, "take --tensor-parallel-size=64"),
        ({"overhead_bytes": 2**40, "gpu_blocks": None}, "a smaller or quantized model"),
    ],
)
def test_what_cannot_be_sized_is_refused_in_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        report(replace(SEEDS, **change))


# What cannot be, and what is missing.


def remark(sized: SizeReport, words: str) -> str:
    (found,) = [note for note in sized.notes if words in note]
    return found


def test_more_blocks_than_the_utilization_leaves_are_remarked_on() -> None:
    assert not [note for note in report(SEEDS).notes if "blocks are" in note]
    reported = remark(report(replace(SEEDS, gpu_blocks=12_000)), "12,000 blocks are 23.4 GiB on each GPU")
    assert "--gpu-memory-utilization=0.65 leaves about 16.9" in reported


def test_far_fewer_blocks_than_the_utilization_leaves_are_remarked_on() -> None:
    reported = remark(report(replace(SEEDS, gpu_blocks=927)), "927 blocks are 1.8 GiB on each GPU")
    assert "--gpu-memory-utilization=0.65 leaves about 16.9" in reported
    assert "most of the memory is idle" in reported


def test_an_endpoint_that_has_more_than_the_gpu_is_on_another_gpu() -> None:
    sized = report(replace(SEEDS, gpu_blocks=None), reported=ReportedFacts(gpu_blocks=40_000))
    assert "is --gpu right, and --tensor-parallel-size=2?" in remark(sized, "The endpoint says that it has 40,000")


def test_a_cpu_tier_larger_than_the_host_is_remarked_on() -> None:
    sized = report(replace(SEEDS, cpu_bytes=100 * GIB, ram_bytes=64 * GIB))
    assert "are more than 64.0 GiB of host memory leave for it, about 41.6" in remark(sized, "100.0 GiB of CPU tier")
    assert not [n for n in report(replace(SEEDS, cpu_bytes=40 * GIB, ram_bytes=64 * GIB)).notes if "of CPU tier" in n]


def test_a_cpu_tier_smaller_than_a_chunk_is_remarked_on() -> None:
    assert "hold not one chunk of 256 tokens, which takes 64 MiB" in remark(
        report(replace(SEEDS, cpu_bytes=2**20)), "--cpu-bytes-to-use"
    )


def test_storage_without_its_speed_and_the_other_way_round_are_remarked_on() -> None:
    assert remark(report(replace(SEEDS, storage_bytes=2**40)), "Without --storage-bandwidth")
    assert remark(report(replace(SEEDS, storage_bytes_per_s=1e9)), "changes nothing without --storage")


def test_copies_of_latent_vectors_are_remarked_on() -> None:
    reported = remark(report(SizeOptions(model="deepseek-v3", gpu="h200", ranks=8)), "latent attention")
    assert "each of 8 GPUs keeps a copy" in reported
    assert "8 times" in reported
    assert not [n for n in report(SizeOptions(model="qwen3-32b", gpu="h200", ranks=8)).notes if "copy" in n]


def test_what_was_given_is_repeated_exactly() -> None:
    settings = advised(report(replace(SEEDS, cpu_bytes=123_456_789_012)))
    assert settings["cpu_bytes_to_use"] == "123456789012"


def test_a_model_that_fits_nowhere_says_so() -> None:
    assert remark(report(SizeOptions(model="llama-3.1-405b", ranks=2)), "with --tensor-parallel-size=2")


# What an endpoint reports.


def test_what_an_endpoint_says_is_taken_and_what_is_typed_wins() -> None:
    reported = ReportedFacts(
        model="Qwen/Qwen3-32B", block_tokens=32, gpu_blocks=4000, utilization=0.8, cpu_tokens=300_032,
        cpu_bytes=300_032 * 262_144, token_bytes=262_144,
    )  # fmt: skip
    sized = report(SizeOptions(ranks=2), reported=reported)
    assert tier(sized, "gpu").tokens_per_endpoint == 128_000
    assert (tier(sized, "cpu").tokens_per_endpoint, tier(sized, "cpu").source) == (300_032, "the endpoint")
    assert advised(sized)["lruCapacityPerServer"] == "18752"
    typed = report(SizeOptions(ranks=2, block_tokens=16, gpu_blocks=100, cpu_bytes=GIB), reported=reported)
    assert tier(typed, "gpu").tokens_per_endpoint == 1600
    assert tier(typed, "cpu").tokens_per_endpoint == 4096


def test_an_endpoint_without_prefix_caching_is_remarked_on() -> None:
    reported = ReportedFacts(model="Qwen/Qwen3-32B", gpu_blocks=520, prefix_caching=False)
    words = "runs with --no-enable-prefix-caching"
    assert "finds nothing again" in remark(report(SizeOptions(ranks=2), reported=reported), words)
    options = SizeOptions(ranks=2, endpoints=8)
    reported = replace(reported, gpu_blocks=40_000)
    without = report(options, LOW, reported)
    assert without.workload is not None
    assert (without.workload.lives_in, without.workload.homes[0].hit_share) == ("nowhere", 0.0)
    assert advised(without)["max_local_cpu_size"] != "none"
    with_it = report(options, LOW, replace(reported, prefix_caching=True))
    assert with_it.workload is not None
    assert with_it.workload.lives_in == "gpu"
    assert advised(with_it)["max_local_cpu_size"] == "none"
    assert not [note for note in with_it.notes if words in note]


def test_an_endpoint_of_another_shape_is_named() -> None:
    reported = ReportedFacts(model="Qwen/Qwen3-32B", gpu_blocks=4000, token_bytes=163_840)
    (note,) = [note for note in report(SizeOptions(ranks=2), reported=reported).notes if "the endpoint says" in note]
    assert "163,840 bytes" in note
    assert "262,144" in note


def test_an_endpoint_of_an_unknown_model_still_has_capacities() -> None:
    reported = ReportedFacts(model="my-own", gpu_blocks=1000, cpu_tokens=64_000, cpu_bytes=64_000_000, token_bytes=1000)
    sized = report(SizeOptions(endpoints=3), reported=reported)
    assert (tier(sized, "gpu").fleet_tokens, tier(sized, "cpu").fleet_tokens) == (48_000, 192_000)
    assert sized.prices == ()
    assert any("my-own" in note for note in sized.notes)
