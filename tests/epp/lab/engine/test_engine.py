import pytest

from epp.lab.engine.job import Hits, Job, RefusedError
from tests.epp.lab.engine.bench import Bench, job, tiny

# A step of TINY takes 0.25 s + the longer of 1 s (weights) and 0.125 s a token. At most 16 tokens are computed in one.
# A block is 4 tokens and 4 bytes; 16 bytes are loaded in a second.


def test_a_cold_prompt_takes_the_steps_that_its_chunks_need() -> None:
    bench = Bench(tiny())
    event = bench.serve(job("a", "p", 24))
    assert event.hits == Hits(0, 0)
    assert bench.ttft("a") == (0.25 + 16 * 0.125) + (0.25 + 8 * 0.125)


def test_a_step_never_takes_less_than_reading_the_weights() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 1))
    assert bench.ttft("a") == 0.25 + 1.0


def test_prefill_attention_grows_with_the_context_before_a_chunk() -> None:
    preset = tiny()
    attention = type(preset.timing)(0.0, 0.0, 0.0, prefill_pair_s=0.5, decode_context_s=0.0)
    bench = Bench(tiny(timing=attention))
    bench.serve(job("a", "p", 20))
    assert bench.ttft("a") == 0.5 * (16 * (0 + 8)) + 0.5 * (4 * (16 + 2))


def test_a_gpu_hit_saves_exactly_the_prefill_of_what_was_cached() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 24))
    cold = bench.ttft("a")
    event = bench.serve(job("b", "p", 28, shared_blocks=4), at=100.0)
    assert event.hits == Hits(gpu=16, cpu=0)
    assert bench.ttft("b") == 0.25 + 12 * 0.125
    assert bench.ttft("b") < cold


def test_a_full_hit_computes_the_last_block_again() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    assert bench.serve(job("b", "p", 16), at=100.0).hits == Hits(gpu=12, cpu=0)


def test_a_hit_ends_at_the_first_block_that_differs() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    keys = (("p", 0), ("other", 1), ("p", 2), ("p", 3))
    assert bench.serve(Job("b", keys, 17, 1), at=100.0).hits == Hits(gpu=4, cpu=0)


def test_a_cpu_hit_takes_its_transfer_and_the_prefill_of_the_rest() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    event = bench.serve(job("b", "p", 20, shared_blocks=4), at=100.0)
    assert event.hits == Hits(gpu=0, cpu=16)
    assert bench.ttft("b") == 16 * 1 / 16.0 + (0.25 + 1.0)


def test_what_the_gpu_holds_is_not_loaded_again() -> None:
    bench = Bench(tiny(gpu_blocks=6, max_model_len=24))
    bench.serve(job("a", "p", 16))
    bench.serve(job("b", "q", 16), at=100.0)  # evicts the tail of a: 2 blocks of it are left
    event = bench.serve(job("c", "p", 20, shared_blocks=4), at=200.0)
    assert event.hits == Hits(gpu=8, cpu=8)
    assert bench.engine.tally.loaded_blocks == 2


def test_loads_go_one_after_the_other() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    bench.serve(job("b", "q", 16), at=50.0)
    bench.engine.reset_prefix_cache()
    bench.submit(job("c", "p", 20, shared_blocks=4), 100.0)
    bench.submit(job("d", "q", 20, shared_blocks=4), 100.0)
    bench.run()
    assert bench.ttft("c") == 1.0 + 1.25
    assert bench.ttft("d") == max(2.0, bench.ttft("c")) + 1.25  # loaded at 2 s, but a step is under way until 2.25 s


def test_a_load_holds_up_nobody_elses_step() -> None:
    bench = Bench(tiny(load_bytes_per_s=0.5))
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    bench.submit(job("slow", "p", 20, shared_blocks=4), 100.0)
    bench.submit(job("quick", "q", 4), 100.0)
    bench.run()
    assert bench.ttft("quick") == 1.25
    assert bench.ttft("slow") == 16 / 0.5 + 1.25


def test_two_requests_for_the_same_blocks_share_one_load() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    bench.submit(job("b", "p", 20, shared_blocks=4), 100.0)
    bench.submit(job("c", "p", 20, shared_blocks=4), 100.0)
    bench.run()
    assert bench.engine.tally.loaded_blocks == 4
    assert bench.started["c"].hits == Hits(gpu=16, cpu=0)


def test_an_engine_without_a_cpu_tier_has_no_cpu_hits() -> None:
    bench = Bench(tiny(cpu_blocks=0))
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    assert bench.serve(job("b", "p", 20), at=100.0).hits == Hits(0, 0)


def test_the_least_recently_used_prompt_leaves_the_gpu_first_and_its_tail_before_its_head() -> None:
    bench = Bench(tiny(cpu_blocks=0, gpu_blocks=12, max_model_len=48))
    bench.serve(job("a", "p", 16))
    bench.serve(job("b", "q", 16), at=100.0)
    bench.serve(job("c", "p", 16), at=200.0)  # p is younger than q now
    bench.serve(job("d", "r", 24), at=300.0)
    assert bench.engine.gpu.matched([("p", n) for n in range(4)]) == 4
    assert bench.engine.gpu.matched([("q", n) for n in range(4)]) == 2


def test_the_cpu_tier_keeps_its_most_recent_blocks() -> None:
    bench = Bench(tiny(cpu_blocks=6))
    bench.serve(job("a", "p", 16))
    bench.serve(job("b", "q", 16), at=100.0)
    assert bench.engine.cpu.matched([("q", n) for n in range(4)]) == 4
    assert bench.engine.cpu.matched([("p", n) for n in range(4)]) == 2
    assert bench.engine.cpu.evicted == 2


def test_a_gpu_hit_keeps_the_copy_in_the_cpu_tier_young() -> None:
    bench = Bench(tiny(cpu_blocks=8))
    bench.serve(job("a", "p", 16))
    bench.serve(job("b", "q", 16), at=100.0)
    bench.serve(job("c", "p", 16), at=200.0)
    bench.serve(job("d", "r", 8), at=300.0)
    assert bench.engine.cpu.matched([("p", n) for n in range(4)]) == 4
    assert bench.engine.cpu.matched([("q", n) for n in range(4)]) == 2


def test_answer_tokens_come_one_a_step() -> None:
    bench = Bench(tiny())
    bench.submit(job("a", "p", 4, output_tokens=5))
    seen = []
    for n in range(1, 5):
        bench.until(n * 1.25)
        seen.append(bench.engine.output_tokens("a"))
    assert seen == [1, 2, 3, 4]
    bench.run()
    assert bench.finished["a"].at == 5 * 1.25


def test_decode_attention_grows_with_the_context() -> None:
    timing = type(tiny().timing)(0.0, 0.0, 0.0, prefill_pair_s=0.0, decode_context_s=1.0)
    bench = Bench(tiny(timing=timing))
    bench.serve(job("a", "p", 8, output_tokens=3))
    assert bench.finished["a"].at == 8 + 9


def test_a_long_prompt_delays_the_tokens_of_others_by_its_chunks_only() -> None:
    bench = Bench(tiny())
    bench.submit(job("talks", "p", 4, output_tokens=20))
    bench.until(1.25)
    bench.submit(job("long", "q", 45), 1.25)
    at = 1.25 + 1.25  # the step under way did not see the newcomer
    for chunk in (15, 15, 15):  # a step has 16 tokens, one of them for the answer
        bench.until(at)
        before = bench.engine.output_tokens("talks")
        at += 0.25 + (chunk + 1) * 0.125
        bench.until(at)
        assert bench.engine.output_tokens("talks") == before + 1
    assert bench.started["long"].at == at


def test_prompts_are_admitted_first_come_first_served() -> None:
    bench = Bench(tiny())
    for n in range(4):
        bench.submit(job(f"{n}", f"p{n}", 12))
    bench.run()
    assert sorted(bench.started, key=lambda name: bench.started[name].at) == ["0", "1", "2", "3"]


def test_what_does_not_fit_waits_and_is_counted_as_waiting() -> None:
    bench = Bench(tiny(max_num_seqs=1))
    bench.submit(job("a", "p", 4, output_tokens=4))
    bench.submit(job("b", "q", 4))
    assert (bench.engine.running, bench.engine.waiting) == (1, 1)
    bench.run()
    assert bench.started["b"].admitted_at == bench.finished["a"].at
    assert (bench.engine.running, bench.engine.waiting) == (0, 0)


def test_a_loading_request_is_counted_as_waiting() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    bench.submit(job("b", "p", 20), 100.0)
    assert (bench.engine.running, bench.engine.waiting) == (0, 1)


def test_without_blocks_the_youngest_starts_again_and_loses_no_token() -> None:
    bench = Bench(tiny(gpu_blocks=4, cpu_blocks=0, max_model_len=16))
    bench.submit(job("old", "p", 7, output_tokens=6))
    bench.submit(job("young", "q", 7, output_tokens=6))
    bench.run()
    assert bench.engine.tally.preemptions > 0
    assert bench.engine.tally.completed == 2
    assert bench.engine.tally.generated_tokens == 12
    assert bench.finished["old"].at < bench.finished["young"].at
    assert bench.engine.gpu.used == 0


def test_the_blocks_of_an_answer_can_be_hit_when_the_caller_names_them() -> None:
    bench = Bench(tiny())
    keys = tuple(("p", n) for n in range(3))
    bench.serve(Job("turn-1", keys, prompt_tokens=6, output_tokens=7))
    assert bench.serve(Job("turn-2", keys, prompt_tokens=13, output_tokens=1), at=100.0).hits == Hits(gpu=12, cpu=0)


@pytest.mark.parametrize("at", [0.0, 1.25, 3.0], ids=["waiting", "prefilling", "decoding"])
def test_an_abort_frees_everything(at: float) -> None:
    bench = Bench(tiny(max_num_seqs=1))
    bench.submit(job("first", "p", 4, output_tokens=2 if at == 0.0 else 1))
    bench.submit(job("a", "q", 24, output_tokens=30))
    assert bench.abort("a", at)
    bench.run()
    assert bench.engine.gpu.used == 0
    assert "a" not in bench.finished


def test_an_abort_while_loading_frees_the_blocks_once_the_copy_is_done() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 16))
    bench.engine.reset_prefix_cache()
    bench.submit(job("b", "p", 20), 100.0)
    bench.submit(job("c", "p", 20), 100.0)  # waits for the same blocks
    assert bench.abort("b", 100.5)
    assert bench.engine.gpu.used == 5
    bench.run()
    assert bench.started["c"].hits == Hits(gpu=16, cpu=0)
    assert bench.engine.gpu.used == 0


def test_aborting_what_is_not_there_says_so() -> None:
    bench = Bench(tiny())
    bench.serve(job("a", "p", 4))
    assert not bench.abort("a", 100.0)


@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(0, 1), (4, 0), (64, 1), (1, 64)])
def test_a_job_beyond_the_context_is_refused_and_leaves_nothing(prompt_tokens: int, output_tokens: int) -> None:
    bench = Bench(tiny())
    with pytest.raises(RefusedError, match="at most 64"):
        bench.submit(Job("a", (), prompt_tokens, output_tokens))
    assert bench.engine.next_at() is None
    assert bench.engine.waiting == 0


def test_an_id_cannot_be_used_twice_at_once() -> None:
    bench = Bench(tiny())
    bench.submit(job("a", "p", 4))
    with pytest.raises(RefusedError, match="'a' is in use"):
        bench.submit(job("a", "p", 4))


def test_a_preset_whose_context_does_not_fit_its_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="max_model_len 65 needs more than 16 GPU blocks"):
        tiny(max_model_len=65)


def test_a_preset_with_more_sequences_than_tokens_in_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="max_num_seqs 17 is more than the 16 tokens"):
        tiny(max_num_seqs=17)
