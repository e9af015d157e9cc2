from __future__ import annotations

from benchmarks.picker.demo_runs import spread, table
from epp.lab.demo.result import Result


def result(name: str, ttft_s: float, misses: float) -> Result:
    return Result(
        name=name, title=name, requests=400, errors={}, duration_s=20.0, mean_ttft_s=ttft_s, p90_ttft_s=2 * ttft_s,
        mean_e2e_s=1.0, requests_per_s=20.0, tokens_per_s=1000.0, gpu_share=0.3, cpu_share=0.7 - misses,
        miss_share=misses,
    )  # fmt: skip


def test_a_figure_that_every_run_has_stands_alone_and_others_have_their_range() -> None:
    assert spread([0.5, 0.5, 0.5], "{:.2f}".format) == "0.50"
    assert spread([0.7, 0.5, 0.52], "{:.2f}".format) == "0.52 (0.50 to 0.70)"


def test_each_run_is_compared_with_its_own_round_robin() -> None:
    runs = [
        [result("robin", 1.0, 0.5), result("aware", 0.5, 0.2)],
        [result("robin", 2.0, 0.5), result("aware", 0.8, 0.2)],
    ]
    *_, robin, aware = table(runs)
    assert robin.startswith("| robin | 1500 (1000 to 2000) ms | 3000 (2000 to 4000) ms | 20.0 requests/s |")
    assert aware == "| aware | ×0.45 (0.40 to 0.50) | ×0.45 (0.40 to 0.50) | ×1.00 | 30 % / 50 % | 20 % |"
