import pytest

from epp.lab.demo.workload import Workload
from epp.lab.engine.preset import DEMO
from epp.lab.engine.tokens import count, render_chat

ENDPOINTS = 4


def test_the_same_seed_asks_the_same_questions_in_the_same_order() -> None:
    assert Workload().prompts("run") == Workload().prompts("run")
    assert Workload().prompts("run") != Workload(seed=8).prompts("run")


def test_every_group_asks_as_often_and_shares_one_system_prompt() -> None:
    workload = Workload(groups=5, prompts_per_group=4)
    prompts = workload.prompts("run")
    assert len(prompts) == workload.requests == 20
    for group in range(5):
        ours = [prompt for prompt in prompts if prompt.group == group]
        assert len(ours) == 4
        assert len({prompt.system for prompt in ours}) == 1
        assert len({prompt.question for prompt in ours}) == 4
    assert len({prompt.system for prompt in prompts}) == 5


def test_two_runs_share_no_prefix_and_are_otherwise_alike() -> None:
    for one, other in zip(Workload().prompts("a"), Workload().prompts("b"), strict=True):
        assert one.system[:16] != other.system[:16]
        assert (one.group, one.question, len(one.system)) == (other.group, other.question, len(other.system))


def test_the_groups_exceed_all_gpu_caches_together_but_not_the_cpu_tiers() -> None:
    shared = Workload().shared_tokens
    assert shared > ENDPOINTS * DEMO.gpu_blocks * DEMO.block_tokens
    assert shared < ENDPOINTS * DEMO.cpu_blocks * DEMO.block_tokens
    assert shared > DEMO.cpu_blocks * DEMO.block_tokens  # no endpoint can hold them all


def test_a_prompt_is_as_long_as_the_workload_says() -> None:
    workload = Workload()
    for prompt in workload.prompts("run")[:20]:
        tokens = count(render_chat([("system", prompt.system), ("user", prompt.question)]).encode())
        wanted = workload.system_tokens + workload.question_tokens
        assert wanted <= tokens <= wanted + 20
        assert tokens + prompt.output_tokens <= DEMO.max_model_len


def test_the_quick_workload_has_the_same_groups_and_fewer_requests() -> None:
    full, quick = Workload(), Workload().quick()
    assert quick.groups == full.groups
    assert quick.requests < full.requests / 2


def test_for_real_endpoints_the_groups_share_twice_what_the_gpus_hold() -> None:
    workload = Workload().sized(gpu_tokens=8 * 148_336, max_model_len=131_072)
    assert workload.shared_tokens == pytest.approx(2 * 8 * 148_336, rel=0.01)
    assert workload.groups == Workload().groups


def test_a_short_context_makes_more_groups_of_shorter_prompts() -> None:
    workload = Workload().sized(gpu_tokens=8 * 148_336, max_model_len=8192)
    assert workload.system_tokens == 8192 * 2 // 3
    assert workload.shared_tokens >= 2 * 8 * 148_336


def test_endpoints_that_do_not_tell_their_size_get_the_workload_as_it_is() -> None:
    assert Workload().sized(gpu_tokens=0, max_model_len=32768) == Workload()
