"""What Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from epp.decision import Cause, Outcome, RequestLabels, Usage
from epp.ledger import Ledger
from epp.pool import Endpoint, EngineMetrics, Pool
from epp.telemetry import Exposition, Reading, Telemetry
from epp.telemetry.histogram import Histogram
from epp.telemetry.series import MAX_LABEL_SETS, MAX_NAMES
from epp.telemetry.tables import DECISION, SCHEDULER
from epp.telemetry.telemetry import MAX_ATTEMPT_KEYS
from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier

TABLE = Path(__file__).parents[2] / "data" / "go-picker-metrics.txt"
LABELS = RequestLabels("llama", "llama-lora", "team-a", 3)
M = {"model_name": "llama", "target_model_name": "llama-lora", "fairness_id": "team-a", "priority": "3"}
A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Bench:
    """A pool of two, a ledger, and what is told of them."""

    def __init__(self, **settings: float) -> None:
        self.pool = Pool("my-pool")
        self.pool.replace([Endpoint(A, "prod/vllm-0"), Endpoint(B)])
        self.ledger = Ledger(self.pool)
        self.telemetry = Telemetry(producers={"gpu-prefix": "approx-prefix-cache-producer"}, **settings)
        self.registry = CollectorRegistry()
        self.registry.register(Exposition(self.telemetry, self.pool, self.ledger, build_ref="v1", commit="abc"))

    def families(self) -> dict[str, Metric]:
        """As a scraper parses them."""
        page = generate_latest(self.registry).decode()
        return {family.name: family for family in text_string_to_metric_families(page)}

    def value(self, name: str, /, **labels: str) -> float | None:
        for family in self.families().values():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def pick(self, address: str = A, labels: RequestLabels = LABELS) -> int:
        candidate = self.pool.candidate(address)
        assert candidate is not None
        return self.ledger.open(candidate, 100, 0.0, story=labels)


def request(**cached: tuple[Tier, int, int]) -> Request:
    """By producer: its tier, the prompt's tokens, and those that slot 0 holds."""
    held = {
        name.replace("_", "-"): CachedPrefix(tier, total, {Slot(0): tokens} if tokens else {})
        for name, (tier, total, tokens) in cached.items()
    }
    return Request("r", "llama", "llama-lora", cached=held)


def everything() -> Bench:
    """A bench on which every metric has been observed."""
    bench = Bench()
    telemetry, first = bench.telemetry, bench.pool.candidates()[0]
    telemetry.request_received(LABELS, 1000)
    telemetry.decided(LABELS, request(gpu_prefix=(Tier.GPU, 100, 40)), first, 0.0003)
    telemetry.plugin("Scorer", "queue-scorer", "queue-scorer")(0.0001)
    telemetry.request_processing(0.001)
    telemetry.response_processing(0.001)
    bench.pick()
    outcome = Outcome(Cause.COMPLETED, 200, duration_s=2.0, ttft_s=0.5, response_bytes=300, streaming=True)
    outcome.usage = Usage(prompt_tokens=50, completion_tokens=20, cached_tokens=16)
    telemetry.ended(LABELS, outcome)
    telemetry.gauge_source(
        lambda: [Reading("llm_d_epp_prefix_indexer_size", "x", ("plugin_type", "plugin_name"), [(("t", "n"), 5)])]
    )
    return bench


def table() -> Iterator[tuple[str, str, frozenset[str], list[float]]]:
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            name, kind, labels, *bounds = line.split()
            yield (
                name,
                kind,
                frozenset(filter(None, labels.strip("{}").split(","))),
                [float(bound.removeprefix("le=")) for bound in bounds],
            )


@pytest.mark.parametrize(("name", "kind", "labels", "bounds"), list(table()), ids=lambda value: str(value)[:60])
def test_names_types_labels_and_buckets_are_the_go_pickers(
    name: str, kind: str, labels: frozenset[str], bounds: list[float]
) -> None:
    family = everything().families()[name.removesuffix("_total")]
    assert family.type == kind
    samples = [s for s in family.samples if not s.name.endswith("_created")]
    assert {frozenset(sample.labels) - {"le"} for sample in samples} == {labels}
    found = sorted({float(sample.labels["le"]) for sample in samples if "le" in sample.labels})
    assert found == bounds


def test_every_metric_has_a_help_text_and_a_known_prefix() -> None:
    for name, family in everything().families().items():
        assert family.documentation, name
        assert name.startswith(("llm_d_epp_", "tierwise_")), name


def test_a_request_from_receipt_to_end() -> None:
    bench = Bench()
    telemetry, first = bench.telemetry, bench.pool.candidates()[0]
    telemetry.request_received(LABELS, 1000)
    telemetry.decided(LABELS, request(), first, 0.0003)
    pick_id = bench.pick()
    assert bench.value("llm_d_epp_request_total", **M) == 1
    assert bench.value("llm_d_epp_request_running", **M) == 1
    attempt = {"endpoint_name": "vllm-0", "namespace": "prod", "port": "8000", "target_model_name": "llama-lora"}
    assert bench.value("llm_d_epp_scheduler_attempts_total", status="success", **attempt) == 1
    bench.ledger.close(pick_id, Cause.COMPLETED)
    usage = Usage(prompt_tokens=50, completion_tokens=20, cached_tokens=16)
    telemetry.ended(LABELS, Outcome(Cause.COMPLETED, 200, duration_s=2.0, ttft_s=0.5, response_bytes=300, usage=usage))
    assert bench.value("llm_d_epp_request_running", **M) == 0
    assert bench.value("llm_d_epp_request_duration_seconds_sum", **M) == 2.0
    assert bench.value("llm_d_epp_request_ntpot_seconds_sum", **M) == 0.1
    assert bench.value("llm_d_epp_request_ttft_seconds_count", streaming="false", **M) == 1
    assert bench.value("llm_d_epp_request_cached_tokens_sum", **M) == 16
    assert bench.value("tierwise_requests_ended_total", cause="completed") == 1


def test_what_nobody_observed_is_not_counted() -> None:
    bench = Bench(sample_ratio=0.01)
    bench.telemetry.ended(LABELS, Outcome(Cause.LEASE_EXPIRED))
    families = bench.families()
    for name in ("request_duration_seconds", "request_ttft_seconds", "response_size_bytes", "request_output_tokens"):
        assert families[f"llm_d_epp_{name}"].samples == []
    assert bench.value("tierwise_response_sample_ratio") == 0.01


def test_refusals_are_counted_by_code_and_as_attempts_where_the_scheduler_refused() -> None:
    bench = Bench()
    for code in ("ServiceUnavailable", "BadRequest"):
        bench.telemetry.refused(LABELS, code)
        assert bench.value("llm_d_epp_request_error_total", error_code=code, **M) == 1
    attempt = {"endpoint_name": "", "namespace": "", "port": "", "target_model_name": "llama-lora"}
    assert bench.value("llm_d_epp_scheduler_attempts_total", status="failure", **attempt) == 1


def test_errors_of_a_response_are_counted_by_code() -> None:
    bench = Bench()
    bench.telemetry.ended(LABELS, Outcome(Cause.COMPLETED, 500, errors=["ModelServerError"]))
    assert bench.value("llm_d_epp_request_error_total", error_code="ModelServerError", **M) == 1


def test_hits_are_counted_by_tier_and_two_producers_of_one_tier_count_once() -> None:
    bench = Bench()
    held = request(gpu_prefix=(Tier.GPU, 100, 40), gpu_again=(Tier.GPU, 100, 30), cpu=(Tier.CPU, 200, 150))
    bench.telemetry.decided(LABELS, held, bench.pool.candidates()[0], 0.0001)
    bench.telemetry.decided(LABELS, held, bench.pool.candidates()[1], 0.0001)
    hits = [bench.value("tierwise_prefix_hit_tokens_total", tier=tier.value) for tier in Tier]
    assert hits == [40, 150, 0]
    gpu = {"plugin_name": "gpu-prefix", "plugin_type": "approx-prefix-cache-producer"}
    assert bench.value("llm_d_epp_prefix_indexer_hit_ratio_sum", **gpu) == 0.4
    assert bench.value("llm_d_epp_prefix_indexer_hit_bytes_sum", **gpu) == 160
    assert bench.value("llm_d_epp_prefix_indexer_hit_ratio_count", **gpu) == 2


def test_a_prompt_without_a_full_block_has_a_hit_ratio_of_nothing() -> None:
    bench = Bench()
    bench.telemetry.decided(LABELS, request(gpu_prefix=(Tier.GPU, 0, 0)), bench.pool.candidates()[0], 0.0001)
    assert bench.telemetry.hits["gpu-prefix"][0].counts[0] == 1


def test_the_pool_in_numbers() -> None:
    bench = Bench()
    bench.pool.observe(Slot(0), EngineMetrics(waiting=4, running=2, kv_usage=0.5), 0)
    bench.pool.observe(Slot(1), EngineMetrics(waiting=0, running=4, kv_usage=0.0), 0)
    name = {"name": "my-pool"}
    assert bench.value("llm_d_epp_average_queue_size", **name) == 2
    assert bench.value("llm_d_epp_std_dev_queue_size", **name) == 2
    assert bench.value("llm_d_epp_average_kv_cache_utilization", **name) == 0.25
    assert bench.value("llm_d_epp_average_running_requests", **name) == 3
    assert bench.value("llm_d_epp_ready_endpoints", **name) == 2
    assert bench.value("llm_d_epp_per_endpoint_queue_size", model_server_endpoint="prod/vllm-0", **name) == 4
    assert bench.value("tierwise_endpoint_in_flight_requests", endpoint=B) == 0
    bench.pool.replace([])
    assert bench.value("llm_d_epp_average_queue_size", **name) == 0


def test_model_names_and_fairness_ids_that_clients_invent_end_up_as_other() -> None:
    bench = Bench()
    for number in range(MAX_NAMES + 500):
        bench.telemetry.request_received(RequestLabels(f"m{number}", "t", f"f{number}"), 1)
    series = bench.telemetry.requests.all()
    assert len(series) <= MAX_NAMES + 1
    other = {"model_name": "other", "target_model_name": "other", "fairness_id": "other", "priority": "0"}
    assert sum(s.requests for s in series) == MAX_NAMES + 500
    assert bench.value("llm_d_epp_request_total", **other) == 500


def test_the_number_of_label_sets_is_bounded_whatever_their_combinations() -> None:
    bench = Bench()
    for model in range(60):
        for fairness in range(60):
            bench.telemetry.request_received(RequestLabels(f"m{model}", "t", f"f{fairness}"), 1)
    assert len(bench.telemetry.requests.all()) <= MAX_LABEL_SETS + 1
    assert sum(s.requests for s in bench.telemetry.requests.all()) == 3600


def test_endpoints_that_come_and_go_do_not_add_attempts_without_end() -> None:
    telemetry = Telemetry()
    for number in range(MAX_ATTEMPT_KEYS + 100):
        telemetry.decided(LABELS, request(), Candidate(Slot(0), f"a{number}:1"), 0.001)
    assert len(telemetry.attempts) <= MAX_ATTEMPT_KEYS + 1
    assert sum(telemetry.attempts.values()) == MAX_ATTEMPT_KEYS + 100


@pytest.mark.parametrize("name", ["a\ud800b", 'quo"te', "back\\slash", "new\nline", "x" * 10_000, "\0", ""])
def test_any_model_name_can_be_written(name: str) -> None:
    bench = Bench()
    bench.telemetry.request_received(RequestLabels(name, name, name), 1)
    samples = bench.families()["llm_d_epp_request"].samples
    assert [sample.value for sample in samples if sample.name.endswith("_total")] == [1]


def test_the_running_gauge_reads_the_ledger_even_for_labels_that_were_never_counted() -> None:
    bench = Bench()
    bench.pick(labels=RequestLabels("fresh"))
    labels = {"model_name": "fresh", "target_model_name": "", "fairness_id": "", "priority": "0"}
    assert bench.value("llm_d_epp_request_running", **labels) == 1


def test_frozen_numbers_do_not_change() -> None:
    bench = everything()
    frozen = Exposition(bench.telemetry, bench.pool, bench.ledger).freeze()
    before = list(frozen.collect())
    bench.telemetry.request_received(LABELS, 1)
    bench.telemetry.decided(LABELS, request(gpu_prefix=(Tier.GPU, 10, 1)), bench.pool.candidates()[0], 1.0)
    bench.pool.replace([])
    assert list(frozen.collect()) == before


@given(st.lists(st.floats(0, 20) | st.sampled_from([0.1, 1.0, 5.0])), st.just((0.1, 1.0, 5.0)))
def test_a_histogram_counts_each_value_in_the_first_bucket_that_holds_it(
    values: list[float], bounds: tuple[float, ...]
) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    edges = [-math.inf, *bounds, math.inf]
    naive = [sum(low < v <= high for v in values) for low, high in pairwise(edges)]
    assert histogram.counts == naive
    assert histogram.total == pytest.approx(sum(values))


@given(st.lists(st.floats(0, 0.3) | st.sampled_from(SCHEDULER.bounds)))
def test_the_scheduler_s_buckets_are_made_from_the_decision_s(values: list[float]) -> None:
    fine, coarse = Histogram(DECISION.bounds), Histogram(SCHEDULER.bounds)
    for value in values:
        fine.observe(value)
        coarse.observe(value)
    assert fine.coarser(SCHEDULER.bounds).counts == coarse.counts
