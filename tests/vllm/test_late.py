"""Copies that do not end: requests compute, the copies keep their blocks, and offloading goes on after their end.

The tests use vLLM's own scheduler and real workers, whose copies are held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvengine.jobs import LATE_S
from tests.vllm.engine import BLOCK_TOKENS, prompts
from tests.vllm.steps import BLOCKS, Steps, StepsOfWorkers, config

CHUNKS = 2  # of 256 tokens, of 600
BLOCKS_OF_CHUNKS = CHUNKS * 8
(PROMPT,), (OTHER,), (THIRD,) = (prompts(1, 600, seed=seed) for seed in (1, 2, 3))

Make = Callable[[int], StepsOfWorkers]


@pytest.fixture
def make(model: Path) -> Iterator[Make]:
    made: list[StepsOfWorkers] = []

    def started(workers: int) -> StepsOfWorkers:
        steps = StepsOfWorkers(config(model), workers)
        made.append(steps)
        scheduler = steps.connector._of_scheduler
        steps.step_until(lambda: not scheduler.planner.growing)
        return steps

    yield started
    for steps in made:
        steps.close()


def stored(steps: StepsOfWorkers, prompt: list[int]) -> None:
    """Put the prompt into host memory, and leave nothing on the device."""
    before = steps.stores
    steps.answer(f"cold {before}", prompt)
    assert steps.stores == before + 1
    steps.forget_device()


def held(steps: StepsOfWorkers) -> int:
    return len(steps.connector._of_scheduler._borrowed)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_whose_load_does_not_end_computes_in_other_blocks(make: Make, workers: int) -> None:
    steps = make(workers)
    stored(steps, PROMPT)
    steps.connector._of_scheduler.late_s = 0
    slow = steps.workers[-1]  # the other workers load, and report it before
    slow.copier.faults = {"load": "hold"}
    asked = steps.add("asked", PROMPT)
    steps.step_until(lambda: not steps.scheduler.get_num_unfinished_requests())
    assert asked.num_output_tokens == 1
    assert steps.loads == 1, "computed, and not loaded again"
    ((_, _, fragments),) = slow.copier.held
    assert held(steps) == BLOCKS_OF_CHUNKS
    pool = steps.scheduler.kv_cache_manager.block_pool
    (job,) = [opened.job for opened in steps.connector._of_scheduler.planner.jobs._open.values()]
    assert len(fragments.sizes) > 0
    assert all(pool.blocks[block].ref_cnt == 1 for block in job.blocks), "used by us alone, and given to no request"
    assert steps.statistics.data["jobs"]["late_jobs"] == {"load": 1}
    assert not steps.scheduler.reset_prefix_cache(), "or the device would seem idle"

    steps.answer_without_waiting("meanwhile", PROMPT)
    steps.answer_without_waiting("another", OTHER)
    assert (steps.loads, steps.stores) == (1, 1), "nothing is copied meanwhile"

    slow.copier.faults = {}
    slow.copier.release()
    steps.connector._of_scheduler.late_s = LATE_S
    steps.step_until(lambda: not held(steps))
    assert steps.free_blocks == BLOCKS - 1
    assert not steps.scheduler.requests
    steps.forget_device()
    steps.answer("again", PROMPT)
    assert steps.loads == 2
    stored(steps, THIRD)
    assert all(worker.different == 0 < worker.compared for worker in steps.workers)


def test_a_request_that_is_aborted_while_its_load_does_not_end_gives_back_what_is_not_written(make: Make) -> None:
    steps = make(1)
    stored(steps, PROMPT)
    steps.connector._of_scheduler.late_s = 0
    (worker,) = steps.workers
    worker.copier.faults = {"load": "hold"}
    steps.add("aborted", PROMPT)
    steps.step_until(lambda: bool(worker.copier.held))
    steps.abort("aborted")
    steps.step_until(lambda: not steps.scheduler.requests)
    assert steps.free_blocks == BLOCKS - 1 - BLOCKS_OF_CHUNKS
    worker.copier.release()
    steps.step_until(lambda: not held(steps))
    assert steps.free_blocks == BLOCKS - 1


def test_a_store_that_does_not_end_keeps_its_blocks_and_costs_no_request_anything(make: Make) -> None:
    steps = make(1)
    steps.connector._of_scheduler.late_s = 0
    (worker,) = steps.workers
    worker.copier.faults = {"store": "hold"}
    steps.answer_without_waiting("cold", PROMPT)
    steps.step_until(lambda: steps.connector._of_scheduler.planner.jobs.stuck)
    assert held(steps) == BLOCKS_OF_CHUNKS
    assert steps.statistics.data["jobs"]["late_jobs"] == {"store": 1}
    for number, prompt in enumerate((OTHER, THIRD, PROMPT)):
        steps.answer_without_waiting(f"more {number}", prompt)
    assert steps.stores == 1
    assert steps.connector.has_pending_push_work(), "vLLM must keep polling for its end"
    worker.copier.faults = {}
    worker.copier.release()
    steps.step_until(lambda: not held(steps))
    steps.connector._of_scheduler.late_s = LATE_S
    assert steps.free_blocks == BLOCKS - 1
    steps.forget_device()
    steps.answer("again", PROMPT)
    assert steps.loads == 1, "it was stored after all"


def test_no_store_is_ordered_while_others_hold_half_of_the_device(make: Make) -> None:
    steps = make(1)
    (worker,) = steps.workers
    worker.copier.faults = {"store": "hold"}
    for number in range(4):
        steps.answer_without_waiting(f"cold {number}", prompts(1, 600, seed=10 + number)[0])
    assert held(steps) == 2 * BLOCKS_OF_CHUNKS, "the first two"
    steps.step()
    assert steps.statistics.data["counters"]["missed_tokens"] == 2 * CHUNKS * 256
    worker.copier.faults = {}
    worker.copier.release()
    steps.step_until(lambda: not held(steps))
    steps.forget_device()
    stored(steps, prompts(1, 600, seed=12)[0])


def test_stores_of_one_step_stop_there_too(make: Make) -> None:
    steps = make(1)
    (worker,) = steps.workers
    worker.copier.faults = {"store": "hold"}
    steps.answer_without_waiting("long", prompts(1, 800, seed=20)[0])
    chunk = 8
    assert held(steps) == 3 * chunk
    for number in range(3):
        steps.add(f"short {number}", prompts(1, 300, seed=21 + number)[0])
    steps.step_until(lambda: not steps.scheduler.get_num_unfinished_requests())
    assert held(steps) == 4 * chunk, "the first one had come to half"
    steps.step()
    assert steps.statistics.data["counters"]["missed_tokens"] == 2 * 256


def test_generated_tokens_that_were_to_be_stored_and_were_not_count_too(model: Path) -> None:
    steps = Steps(config(model, offload={"store_decode": True, "chunk_size": BLOCK_TOKENS}))
    scheduler = steps.connector._of_scheduler
    scheduler.late_s = 0
    steps.order("never ends", PROMPT)
    steps.step_until(lambda: scheduler.planner.jobs.stuck)
    before = steps.statistics.data["counters"].get("missed_tokens", 0)
    steps.answer_without_waiting("talk", OTHER[:60], max_tokens=69)
    steps.step()
    missed = steps.statistics.data["counters"]["missed_tokens"] - before
    assert missed == 128, "60 tokens of the prompt, and 68 that were computed after them"


def test_a_request_for_logprobs_of_the_prompt_neither_loads_nor_waits(make: Make) -> None:
    steps = make(1)
    stored(steps, PROMPT)
    (worker,) = steps.workers
    worker.copier.faults = {"load": "hold"}
    steps.add("loading", PROMPT)
    steps.step_until(lambda: bool(worker.copier.held))
    asked = steps.add("asking", PROMPT, prompt_logprobs=1)
    steps.step_until(asked.is_finished)
    assert steps.loads == 1
    assert steps.connector._of_scheduler.planner.counts.waited == 0
    worker.copier.release()
    steps.step_until(lambda: not steps.scheduler.has_requests())
