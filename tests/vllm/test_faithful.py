"""One engine whose two tiers are far too small for its requests, with checksums: tokens and bytes stay correct.

The tests share the engine and run in this order; the last one ends its offloading.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.engine import BLOCK_TOKENS, PATIENCE_S, Engine, Tokens, engine, series
from tests.vllm.probe import FAULT
from tests.vllm.scenarios import SCENARIOS, Expected, kept, second_turn, tokens

CHUNK = 64
ONE = kept(600, CHUNK)  # of the prompts of 600 tokens
OFFLOAD = {"num_cpu_blocks": 200, "chunk_size": CHUNK, "verify": True, "store_decode": True}


@pytest.fixture(scope="module")
def tested(model: Path, expected: Expected) -> Iterator[Engine]:
    with engine(
        model, OFFLOAD, probed=True, enable_prefix_caching=True, num_gpu_blocks_override=72, max_model_len=1024
    ) as started:
        started.settle()  # wait until host memory is ready
        yield started


def hits(tested: Engine) -> float:
    return tested.metric("vllm:external_prefix_cache_hits")


def hits_of(tested: Engine, name: str, expected: Expected) -> float:
    """Run a scenario, check its answers, and return how many tokens it took from host memory."""
    before = hits(tested)
    assert tokens(tested, name) == expected[name], name
    return hits(tested) - before


def fresh(tested: Engine, name: str, expected: Expected) -> None:
    """Put a scenario into host memory, and leave nothing on the device."""
    tested.forget_gpu()
    assert tokens(tested, name) == expected[name], name
    tested.settle()
    tested.forget_gpu()


def asked(tested: Engine, prompt: Tokens, max_tokens: int = 8, *, salt: str | None = None, **params: Any) -> Tokens:
    from vllm import SamplingParams

    extra = {"kv_transfer_params": params} if params else None
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, extra_args=extra)
    request = {"prompt_token_ids": prompt} | ({"cache_salt": salt} if salt else {})
    (answer,) = tested.llm.generate([request], sampling, use_tqdm=False)
    return list(answer.outputs[0].token_ids)


def test_cold_from_the_device_and_from_host_memory(tested: Engine, expected: Expected) -> None:
    assert hits_of(tested, "single", expected) == 0, "cold"
    assert hits_of(tested, "single", expected) == 0, "from the device"
    tested.settle()
    tested.forget_gpu()
    assert hits_of(tested, "single", expected) == ONE, "from host memory"


def test_prompts_of_all_lengths_again_and_again(tested: Engine, expected: Expected) -> None:
    for _ in range(2):
        for name in ("few", "lengths", "third"):
            tested.forget_gpu()
            assert tokens(tested, name) == expected[name], name


def test_prompts_that_share_prefixes_at_every_alignment(tested: Engine, expected: Expected) -> None:
    """The device's own blocks reach into a chunk, or to its end."""
    before = hits(tested)
    for number, (prompt, answer) in enumerate(zip(SCENARIOS["aligned"].prompts, expected["aligned"], strict=True)):
        assert asked(tested, prompt, 6) == answer, "beside those before it"
        tested.forget_gpu()
        asked(tested, prompt[: BLOCK_TOKENS * (1 + number % 3) + 8], 1)  # some blocks of it are on the device
        assert asked(tested, prompt, 6) == answer
    assert hits(tested) - before > 1000


def test_sixteen_at_once_under_eviction_from_both_tiers_and_preemption(tested: Engine, expected: Expected) -> None:
    before, preempted = hits(tested), tested.metric("vllm:num_preemptions")
    for _ in range(3):
        tested.forget_gpu()
        assert tokens(tested, "crowd") == expected["crowd"]
    assert tested.metric("vllm:num_preemptions") > preempted
    assert hits(tested) > before
    tested.settle()
    assert series("kvengine:evicted_tokens_total") > 1000


def test_what_was_generated_is_found_in_the_next_turn(tested: Engine, expected: Expected) -> None:
    fresh(tested, "talk", expected)
    before = hits(tested)
    assert asked(tested, second_turn(expected)[0]) == expected["turn"][0]
    assert hits(tested) - before == kept(480, CHUNK) > kept(400, CHUNK)


def test_equal_prompts_with_another_salt_are_other_prompts(tested: Engine, expected: Expected) -> None:
    prompt, answer = SCENARIOS["other"].prompts[0], expected["other"][0]
    found = []
    for salt in ("a", "b", "a", "b", None):
        before = hits(tested)
        tested.forget_gpu()
        assert asked(tested, prompt, salt=salt) == answer
        tested.settle()
        found.append(hits(tested) - before)
    assert found == [0, 0, ONE, ONE, 0]


def test_a_load_that_is_torn_is_computed(tested: Engine, expected: Expected) -> None:
    fresh(tested, "single", expected)
    before = series("kvengine:failed_jobs_total", direction="load")
    tested.ask("kv_faults", load="tear")
    assert tokens(tested, "single") == expected["single"]
    tested.ask("kv_faults")
    tested.settle()
    assert series("kvengine:failed_jobs_total", direction="load") == before + 1
    tested.forget_gpu()
    assert hits_of(tested, "single", expected) == ONE, "it was stored again"


def test_loads_that_are_torn_under_pressure_are_computed(tested: Engine, expected: Expected) -> None:
    tested.ask("kv_faults", load="tear", store="tear")
    tokens(tested, "crowd")
    tested.ask("kv_faults", load="tear")
    for _ in range(2):
        tested.forget_gpu()
        assert tokens(tested, "crowd") == expected["crowd"]
    tested.ask("kv_faults")


def test_a_store_that_is_torn_is_dropped_and_counted(tested: Engine, expected: Expected) -> None:
    tested.llm.reset_prefix_cache(reset_connector=True)
    before = series("kvengine:failed_jobs_total", direction="store")
    tested.ask("kv_faults", store="tear")
    fresh(tested, "single", expected)
    tested.ask("kv_faults")
    assert series("kvengine:failed_jobs_total", direction="store") > before
    assert series("kvengine:tier_resident_tokens", tier="cpu") == 0
    assert hits_of(tested, "single", expected) == 0


@pytest.mark.parametrize("offset", [3, 100_003])
def test_a_bit_that_flips_in_memory_is_computed(tested: Engine, expected: Expected, offset: int) -> None:
    fresh(tested, "single", expected)
    before = series("kvengine:failed_jobs_total", direction="load")
    assert tested.ask("kv_flip", offset)[0] > 0
    assert tokens(tested, "single") == expected["single"]
    tested.settle()
    assert series("kvengine:failed_jobs_total", direction="load") == before + 1


def test_a_reset_reaches_what_is_being_stored(tested: Engine, expected: Expected) -> None:
    tested.llm.reset_prefix_cache(reset_connector=True)
    tested.ask("kv_faults", store="hold")
    assert tokens(tested, "other") == expected["other"]
    assert tested.ask("kv_held")[0] > 0
    assert not tested.llm.reset_prefix_cache(reset_connector=True), "the device's blocks are still being read"
    tested.ask("kv_release")
    tested.ask("kv_faults")
    tested.settle()
    tested.forget_gpu()
    assert hits_of(tested, "other", expected) == 0, "what was computed before the reset is not found"
    tested.settle()
    tested.forget_gpu()
    assert hits_of(tested, "other", expected) == ONE, "what was computed after it is"


def test_a_request_that_is_aborted_while_it_loads_leaves_nothing(tested: Engine, expected: Expected) -> None:
    from vllm import SamplingParams

    fresh(tested, "single", expected)
    tested.ask("kv_faults", load="hold")
    (prompt,) = SCENARIOS["single"].prompts
    waiting = tested.llm.llm_engine
    name = waiting.add_request("aborted", {"prompt_token_ids": prompt}, SamplingParams(max_tokens=4, detokenize=False))
    until = time.monotonic() + PATIENCE_S
    while not tested.ask("kv_held")[0]:
        assert time.monotonic() < until
    waiting.abort_request([name or "aborted"], internal=name is not None)
    tested.llm.reset_prefix_cache(reset_connector=True)
    tested.ask("kv_release")
    tested.ask("kv_faults")
    assert tokens(tested, "single") == expected["single"]
    tested.settle()
    for tier in ("gpu", "cpu"):
        assert series("kvengine:tier_pinned_tokens", tier=tier) == 0, tier
    tested.forget_gpu()


def load_jobs() -> float:
    return series("kvengine:jobs_total", direction="load")


def three_of_a_kind(tested: Engine) -> dict[str, Tokens]:
    """Begin a request whose load is held back, and two with the same prompt that wait for it; none is answered yet."""
    (prompt,) = SCENARIOS["single"].prompts
    waiting = series("kvengine:waits_total")
    answers: dict[str, Tokens] = {}
    tested.ask("kv_faults", load="hold")
    tested.begin("first", prompt)
    tested.step(lambda _: tested.ask("kv_held") == [1], answers)
    tested.begin("second", prompt)
    tested.begin("third", prompt)
    tested.step(lambda _: series("kvengine:waits_total") == waiting + 2, answers)
    assert tested.ask("kv_held") == [1], "there is one load"
    assert series("kvengine:open_jobs", direction="load") == 1
    assert not answers
    return answers


def test_what_several_wait_for_is_loaded_once_and_the_others_find_it_on_the_device(
    tested: Engine, expected: Expected
) -> None:
    fresh(tested, "single", expected)
    before, gave_up = hits(tested), series("kvengine:waits_given_up_total")
    answers = three_of_a_kind(tested)
    loads, on_device = load_jobs(), tested.metric("vllm:prefix_cache_hits")
    tested.ask("kv_faults")
    tested.ask("kv_release")
    tested.step(lambda done: len(done) == 3, answers)
    assert list(answers.values()) == expected["single"] * 3
    tested.settle()
    assert load_jobs() == loads + 1
    assert load_jobs() == series("kvengine:job_seconds_count", direction="load")
    assert series("kvengine:open_jobs", direction="load") == 0
    assert hits(tested) - before == ONE
    assert tested.metric("vllm:prefix_cache_hits") - on_device >= 2 * ONE
    assert series("kvengine:waits_given_up_total") == gave_up


def test_a_request_that_waits_too_long_for_another_load_computes(tested: Engine, expected: Expected) -> None:
    fresh(tested, "single", expected)
    gave_up = series("kvengine:waits_given_up_total")
    answers = three_of_a_kind(tested)
    loads = load_jobs()
    tested.step(lambda done: len(done) == 2, answers)
    assert answers == dict.fromkeys(("second", "third"), expected["single"][0]), "while the first one still waits"
    assert tested.ask("kv_held") == [1]
    assert series("kvengine:waits_given_up_total") > gave_up, "one at least; the other may find what that one computes"
    tested.ask("kv_faults")
    tested.ask("kv_release")
    tested.step(lambda done: len(done) == 3, answers)
    assert answers["first"] == expected["single"][0]
    tested.settle()
    assert load_jobs() == loads + 1


def test_an_engine_that_is_put_to_sleep_while_it_stores_forgets_and_wakes_up(
    tested: Engine, expected: Expected
) -> None:
    tested.llm.reset_prefix_cache(reset_connector=True)
    fresh(tested, "single", expected)
    tested.ask("kv_faults", store="linger")
    assert tokens(tested, "other") == expected["other"]
    assert tested.ask("kv_held")[0] > 0
    tested.llm.sleep(level=1)  # this empties the device's cache, so vLLM has the connector forget as well
    assert tested.ask("kv_held") == [0], "it waits for what reads the device's blocks"
    assert tested.llm.wake_up()
    tested.ask("kv_faults")
    for name in ("single", "other"):
        assert hits_of(tested, name, expected) == 0, name
    tested.settle()
    tested.forget_gpu()
    assert hits_of(tested, "other", expected) == ONE, "stored anew"


def test_an_error_in_a_lookup_affects_only_its_own_request(tested: Engine, expected: Expected) -> None:
    fresh(tested, "single", expected)
    before = hits(tested)
    assert asked(tested, SCENARIOS["single"].prompts[0], **{FAULT: "match"}) == expected["single"][0]
    assert hits(tested) == before
    assert series("kvengine:internal_errors_total") == 1
    fresh(tested, "other", expected)
    assert hits_of(tested, "other", expected) == ONE


def test_every_block_that_came_back_has_the_bytes_that_went(tested: Engine) -> None:
    ((compared, different),) = tested.ask("kv_bytes")
    assert compared * BLOCK_TOKENS > 10_000
    assert different == 0


def test_any_other_error_ends_offloading_and_the_engine_serves_on(tested: Engine, expected: Expected) -> None:
    fresh(tested, "single", expected)
    assert asked(tested, SCENARIOS["single"].prompts[0], **{FAULT: "allocated"}) == expected["single"][0], "promised"
    for name in ("single", "other", "few"):
        tested.forget_gpu()
        assert hits_of(tested, name, expected) == 0
    tested.settle()
    assert series("kvengine:internal_errors_total") >= 2
    for what in ("capacity", "resident", "pinned"):
        assert series(f"kvengine:tier_{what}_tokens", tier="cpu") == 0, what
