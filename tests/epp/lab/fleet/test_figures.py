from __future__ import annotations

import math

import pytest

from epp.lab.engine.job import Hits
from epp.lab.fleet.figures import changes, figures_of, interval
from epp.lab.fleet.inference_perf import distribution, lifecycle
from epp.lab.fleet.prompts import Ask, PromptPart
from epp.lab.fleet.record import Record


def record(arrived: float, first: float, ended: float, *, gpu: int = 0, cpu: int = 0, predicted: int = 0) -> Record:
    made = Record(Ask((PromptPart(1, 100),), 11), arrived, 0, 1, predicted)
    made.admitted_at, made.first_at, made.ended_at, made.hits = arrived, first, ended, Hits(gpu, cpu)
    return made


RECORDS = [record(0.0, 1.0, 2.0), record(1.0, 1.5, 3.5, gpu=32, cpu=48, predicted=64), record(2.0, 5.0, 10.0)]


def test_figures_are_those_of_the_published_tables() -> None:
    figures = figures_of(RECORDS)
    assert figures.mean_ttft_s == pytest.approx(1.5)
    assert figures.p90_ttft_s == 3.0
    assert figures.mean_e2e_s == pytest.approx(12.5 / 3)
    assert figures.duration_s == 10.0
    assert figures.tokens_per_s == pytest.approx(333 / 10)
    assert (figures.input_tokens_per_s, figures.output_tokens_per_s) == pytest.approx((30.0, 3.3))
    assert figures.itl_s == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert (figures.gpu_share, figures.cpu_share) == pytest.approx((32 / 300, 48 / 300))
    assert figures.prediction_error == pytest.approx(16 / 300)


def test_refused_requests_count_as_refused_and_in_nothing_else() -> None:
    refused = record(3.0, 0.0, 3.0)
    refused.refused = "too long"
    figures = figures_of([*RECORDS, refused])
    assert (figures.requests, figures.refused) == (4, 1)
    assert figures.mean_ttft_s == pytest.approx(1.5)
    nothing = figures_of([refused])
    assert nothing.refused == 1
    assert math.isnan(nothing.tokens_per_s)


def test_the_interval_is_students() -> None:
    assert interval([2.0, 4.0, 6.0]).mean == 4.0
    assert interval([2.0, 4.0, 6.0]).margin == pytest.approx(4.30 * 2.0 / math.sqrt(3))
    assert math.isnan(interval([1.0]).margin)


def test_changes_compare_runs_of_one_seed() -> None:
    slow, fast = figures_of(RECORDS), figures_of([record(0.0, 0.5, 2.0)])
    change = changes([fast, slow], [slow, fast], lambda f: f.mean_ttft_s)
    assert change.mean == pytest.approx(((0.5 / 1.5 - 1) + (1.5 / 0.5 - 1)) / 2)


def test_the_json_has_the_shape_of_inference_perfs() -> None:
    summary = lifecycle(RECORDS)
    assert set(summary) == {"benchmark_time_seconds", "load_summary", "successes", "failures"}
    successes = summary["successes"]
    assert isinstance(successes, dict)
    assert successes["count"] == 3
    assert successes["throughput"]["total_tokens_per_sec"] == pytest.approx(33.3)
    assert successes["prompt_tokens"]["cached"] == 80
    assert set(successes["latency"]["time_to_first_token"]) == {
        *("mean", "min", "max", "p0.1", "p1", "p5", "p10", "p25", "median", "p75", "p90", "p95", "p99", "p99.9"),
    }


def test_the_distribution_of_nothing_is_none() -> None:
    assert distribution([]) is None
