from epp.config.wiring.build import plan_from
from epp.lab.demo.arms import arms


def test_every_arm_of_the_picker_is_a_configuration_that_it_takes_without_a_warning() -> None:
    for arm in arms(cpu_blocks=4100):
        if arm.config is not None:
            assert plan_from(None, arm.config).warnings == ()


def test_the_arms_weigh_load_alike_and_give_the_prefix_the_same_say() -> None:
    weights = {}
    for arm in arms():
        if arm.config is not None:
            scorers = plan_from(None, arm.config).profile.scorers
            weights[arm.name] = {scorer.name: weight for scorer, weight in scorers}
    assert weights == {
        "gpu-only": {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "gpu-prefix-cache-scorer": 2},
        "tier-aware": {
            "queue-scorer": 2,
            "kv-cache-utilization-scorer": 2,
            "gpu-prefix-cache-scorer": 1,
            "cpu-prefix-cache-scorer": 1,
        },
        "cost": {"tier-cost-scorer": 1},
    }


def test_the_baseline_asks_no_picker() -> None:
    assert arms()[0].config is None
