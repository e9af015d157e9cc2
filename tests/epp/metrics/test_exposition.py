"""The metrics page as Prometheus reads it."""

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
from epp.histogram import Histogram
from epp.metrics.exposition import Exposition
from epp.metrics.gauges import Reading
from epp.metrics.in_flight import MAX_SERIES
from epp.metrics.series import (
    MAX_FOLDED_HISTOGRAM_SETS,
    MAX_FOLDED_SETS,
    MAX_HISTOGRAM_SETS,
    MAX_LABEL_SETS,
    MAX_NAME_BYTES,
    MAX_NAMES,
)
from epp.metrics.tables import DECISION, ITL, SCHEDULER
from epp.metrics.telemetry import MAX_ATTEMPT_KEYS, MAX_ERROR_CODES, MAX_FOLDED_ATTEMPT_KEYS, Telemetry
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.server.stream_counts import StreamCounts
from epp.wire.service import Status
from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier

TABLE = Path(__file__).parents[2] / "data" / "go-picker-metrics.txt"
LABELS = RequestLabels("llama", "llama-lora", "team-a", 3)
M = {"model_name": "llama", "target_model_name": "llama-lora", "fairness_id": "team-a", "priority": "3"}
OLDER = ("inference_objective_", "inference_pool_", "inference_extension_", "llm_d_inference_scheduler_")
A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Bench:
    """A pool of two endpoints, a ledger, and the telemetry of both."""

    def __init__(self, *, deprecated: bool = True, **settings: float) -> None:
        self.pool = Pool("my-pool")
        self.pool.replace([Endpoint(A, "prod/vllm-0"), Endpoint(B)])
        self.ledger = Ledger(self.pool)
        self.telemetry = Telemetry(producers={"gpu-prefix": "approx-prefix-cache-producer"}, **settings)
        self.registry = CollectorRegistry()
        made = Exposition(self.telemetry, self.pool, self.ledger, build_ref="v1", commit="abc", deprecated=deprecated)
        self.registry.register(made)

    def families(self) -> dict[str, Metric]:
        """Return the page as a scraper parses it."""
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
        return self.ledger.open(candidate, 100, 0.0, labels)


def request(**cached: tuple[Tier, int, int]) -> Request:
    """Cached tokens by producer: its tier, the prompt's tokens, and those that slot 0 holds."""
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
    telemetry.refused(LABELS, "BadRequest")
    telemetry.decided(LABELS, request(gpu_prefix=(Tier.GPU, 100, 40)), first, 0.0003)
    telemetry.plugin("Scorer", "queue-scorer", "queue-scorer")(0.0001)
    telemetry.request_processing(0.001)
    telemetry.response_processing(0.001)
    bench.pick()
    outcome = Outcome(Cause.COMPLETED, 200, duration_s=2.0, ttft_s=0.5, response_bytes=300, streaming=True)
    outcome.gaps = Histogram(ITL.bounds)
    outcome.gaps.observe(0.03)
    outcome.usage = Usage(prompt_tokens=50, completion_tokens=20, cached_tokens=16)
    telemetry.ended(LABELS, outcome)
    telemetry.gauge_source(
        lambda: [Reading("llm_d_epp_prefix_indexer_size", "x", ("plugin_type", "plugin_name"), [(("t", "n"), 5)])]
    )
    streams = StreamCounts(lambda: 0.0)
    streams.over(Status.OK, streams.began())
    telemetry.gauge_source(streams.readings)
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
        if name.startswith(OLDER):
            assert family.documentation.startswith("Deprecated: llm_d_epp_"), name
        else:
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


def test_numbers_that_were_not_observed_are_not_counted() -> None:
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


def test_endpoints_that_do_not_answer_are_in_the_pool_and_its_page_says_what_counts_the_others() -> None:
    bench = Bench()
    for slot in (Slot(0), Slot(1)):
        bench.pool.observe(slot, EngineMetrics(), 0)
    bench.pool.mark_stale(Slot(0))
    assert bench.value("llm_d_epp_ready_endpoints", name="my-pool") == 2
    assert sum(bench.value("tierwise_endpoint_fresh", endpoint=address) for address in (A, B)) == 1
    (ready,) = [family for family in bench.registry.collect() if family.name == "llm_d_epp_ready_endpoints"]
    assert ready.documentation.endswith("sum(tierwise_endpoint_fresh) are those that do.")


def test_model_names_and_fairness_ids_that_clients_invent_end_up_as_other() -> None:
    bench = Bench()
    for number in range(MAX_NAMES + 500):
        bench.telemetry.request_received(RequestLabels(f"m{number}", "t", f"f{number}"), 1)
    series = bench.telemetry.requests.all()
    assert sum(s.requests for s in series) == MAX_NAMES + 500
    other = {"model_name": "other", "target_model_name": "t", "fairness_id": "other", "priority": "0"}
    assert bench.registry.get_sample_value("llm_d_epp_request_total", other) == 500
    # The target takes one of the models' names.
    assert bench.registry.get_sample_value("tierwise_labels_folded_total", {"label": "model_name"}) == 501
    assert bench.registry.get_sample_value("tierwise_labels_folded_total", {"label": "fairness_id"}) == 500


def test_the_number_of_label_sets_is_bounded_whatever_their_combinations() -> None:
    bench = Bench()
    for model in range(60):
        for fairness in range(60):
            bench.telemetry.request_received(RequestLabels(f"m{model}", "t", f"f{fairness}"), 1)
    assert len(bench.telemetry.requests.all()) <= MAX_LABEL_SETS + MAX_FOLDED_SETS + 1
    assert sum(s.requests for s in bench.telemetry.requests.all()) == 3600


def observed(bench: Bench, labels: RequestLabels) -> None:
    """One request with every number observed."""
    bench.telemetry.request_received(labels, 1)
    for streaming in (False, True):
        outcome = Outcome(Cause.COMPLETED, 200, duration_s=2.0, ttft_s=0.5, response_bytes=3, streaming=streaming)
        outcome.usage, outcome.gaps = Usage(50, 20, 16), Histogram(ITL.bounds)
        bench.telemetry.ended(labels, outcome)


def invented(number: int, length: int = 240) -> str:
    return f"{number:0{length}}"


def test_the_page_that_clients_can_make_is_bounded_in_bytes() -> None:
    bench = Bench(deprecated=False)
    for number in range(3000):
        name = invented(number)
        observed(bench, RequestLabels(name, name, name))
    page = generate_latest(bench.registry)
    assert len(page) < 8_000_000
    assert sum(s.requests for s in bench.telemetry.requests.all()) == 3000


def test_beyond_their_limit_histograms_are_a_model_s_and_then_everybody_s_and_lose_no_observation() -> None:
    bench = Bench()
    for number in range(MAX_HISTOGRAM_SETS):
        observed(bench, RequestLabels("a", "a", f"f{number}"))
    for number in range(MAX_FOLDED_HISTOGRAM_SETS + 3):
        for tenant in ("x", "y"):
            observed(bench, RequestLabels(f"m{number}", "t", tenant))
    own = {"model_name": "a", "target_model_name": "a", "fairness_id": "f0", "priority": "0"}
    folded = {"model_name": "m0", "target_model_name": "t", "fairness_id": "other", "priority": "0"}
    rest = {"model_name": "other", "target_model_name": "other", "fairness_id": "other", "priority": "0"}
    value = bench.registry.get_sample_value
    name = "llm_d_epp_request_duration_seconds_count"
    assert (value(name, own), value(name, folded), value(name, rest)) == (2, 4, 12)
    assert value("llm_d_epp_request_total", {**folded, "fairness_id": "x"}) == 1
    assert value("tierwise_labels_folded_total", {"label": "histograms"}) == 2 * (MAX_FOLDED_HISTOGRAM_SETS + 3)


def test_a_fairness_id_that_is_called_other_shares_its_histograms_and_no_line_appears_twice() -> None:
    bench = Bench()
    observed(bench, RequestLabels("b", "b", "other"))
    for number in range(MAX_HISTOGRAM_SETS + 5):
        observed(bench, RequestLabels("a", "a", f"f{number}"))
    observed(bench, RequestLabels("b", "b", "team"))
    lines = [line.rpartition(b" ")[0] for line in generate_latest(bench.registry).splitlines() if line[:1] != b"#"]
    assert len(lines) == len(set(lines))


def test_long_names_are_distinguished_by_a_digest() -> None:
    bench = Bench()
    for end in "ab":
        bench.telemetry.request_received(RequestLabels("m" * 200 + end, "t", "f"), 1)
    names = {series.labels.model_name for series in bench.telemetry.requests.all()}
    assert len(names) == 2
    assert all(len(name.encode()) <= MAX_NAME_BYTES for name in names)


def test_invented_fairness_ids_do_not_hide_which_models_are_used() -> None:
    bench = Bench()
    for number in range(MAX_LABEL_SETS):
        bench.telemetry.request_received(RequestLabels("a", "a", f"f{number % 600}", number), 1)
    bench.telemetry.request_received(RequestLabels("b", "b", "team"), 1)
    labels = {"model_name": "b", "target_model_name": "b", "fairness_id": "other", "priority": "0"}
    assert bench.registry.get_sample_value("llm_d_epp_request_total", labels) == 1
    assert bench.registry.get_sample_value("tierwise_labels_folded_total", {"label": "fairness_id"}) == 1
    for number in range(MAX_FOLDED_SETS + 3):
        bench.telemetry.request_received(RequestLabels(f"m{number}", "m", "team"), 1)
    assert bench.registry.get_sample_value("tierwise_labels_folded_total", {"label": "all"}) == 4


def test_a_name_in_use_keeps_its_series_whatever_comes_later() -> None:
    bench = Bench()
    bench.telemetry.request_received(LABELS, 1)
    for number in range(3000):
        bench.telemetry.request_received(RequestLabels(f"m{number}", "t", f"f{number}", number), 1)
    bench.telemetry.request_received(LABELS, 1)
    assert bench.registry.get_sample_value("llm_d_epp_request_total", M) == 2


def test_error_codes_are_bounded() -> None:
    telemetry = Telemetry()
    for number in range(MAX_ERROR_CODES + 50):
        telemetry.refused(LABELS, f"code{number}")
        telemetry.ended(LABELS, Outcome(Cause.COMPLETED, errors=[f"code{number}"]))
    errors = telemetry.requests(LABELS).errors
    assert len(errors) == MAX_ERROR_CODES + 1
    assert errors["other"] == 100


def test_endpoints_that_come_and_go_do_not_add_attempts_without_end() -> None:
    telemetry = Telemetry()
    for number in range(MAX_FOLDED_ATTEMPT_KEYS + 100):
        telemetry.decided(LABELS, request(), Candidate(Slot(0), f"a{number}:1"), 0.001)
    assert len(telemetry.attempts) <= MAX_FOLDED_ATTEMPT_KEYS + 1
    assert sum(telemetry.attempts.values()) == MAX_FOLDED_ATTEMPT_KEYS + 100


def test_models_that_clients_invent_do_not_hide_which_endpoints_are_picked() -> None:
    telemetry = Telemetry()
    for number in range(600):
        labels = RequestLabels(f"m{number}", f"m{number}", "f")
        for endpoint in range(10):
            telemetry.decided(labels, request(), Candidate(Slot(0), f"a{endpoint}:1"), 0.001)
    assert len(telemetry.attempts) == MAX_ATTEMPT_KEYS + 10
    assert telemetry.attempts["other", "", "a3:1"] == 600 - MAX_ATTEMPT_KEYS / 10


@pytest.mark.parametrize("name", ["a\ud800b", 'quo"te', "back\\slash", "new\nline", "x" * 10_000, "\0", ""])
def test_any_model_name_can_be_written(name: str) -> None:
    bench = Bench()
    bench.telemetry.request_received(RequestLabels(name, name, name), 1)
    samples = bench.families()["llm_d_epp_request"].samples
    assert [sample.value for sample in samples if sample.name.endswith("_total")] == [1]


ANY_NAME = st.text(max_size=300) | st.sampled_from(["\r", "\x85\x1c", "\u2028", '"} 1\nfake 2', "\\", "\\n"])


@given(st.lists(st.tuples(ANY_NAME, ANY_NAME, ANY_NAME), max_size=5))
def test_whatever_clients_call_things_the_page_is_read_as_it_was_meant(names: list[tuple[str, str, str]]) -> None:
    bench = Bench()
    for model, target, fairness in names:
        bench.telemetry.request_received(RequestLabels(model, target, fairness), 1)
    for _, target, _ in names:
        bench.telemetry.refused(RequestLabels(target, target, target), "ServiceUnavailable")
    samples = bench.families()["llm_d_epp_request"].samples
    assert sum(s.value for s in samples if s.name.endswith("_total")) == len(names)
    for sample in samples:
        for value in sample.labels.values():
            assert len(value) <= 256
            assert len(value.splitlines()) <= 1
    lines = [line for line in generate_latest(bench.registry).split(b"\n") if line and not line.startswith(b"#")]
    assert len(lines) == sum(len(family.samples) for family in bench.registry.collect())


def test_requests_in_flight_are_counted_by_endpoint_and_flow() -> None:
    bench = Bench()
    pick_id = bench.pick()
    bench.pick()
    bench.pick(B)
    flow = {"producer_name": "inflight-load-producer", "fairness_id": "team-a", "priority": "3"}
    a, b = {"endpoint_name": "vllm-0", "namespace": "prod"}, {"endpoint_name": B, "namespace": ""}
    assert bench.value("llm_d_epp_inflight_requests", **flow, **a) == 2
    assert bench.value("llm_d_epp_inflight_tokens", **flow, **a) == 200
    assert bench.value("llm_d_epp_inflight_requests", **flow, **b) == 1
    bench.ledger.answering(pick_id)
    assert bench.value("llm_d_epp_inflight_tokens", **flow, **a) == 100
    bench.ledger.close(pick_id, Cause.COMPLETED)
    assert bench.value("llm_d_epp_inflight_requests", **flow, **a) == 1


def test_flows_in_flight_are_bounded() -> None:
    bench = Bench()
    for number in range(MAX_SERIES + 20):
        bench.pick(labels=RequestLabels("m", "m", "f", number))
    samples = bench.families()["llm_d_epp_inflight_requests"].samples
    assert len(samples) <= MAX_SERIES + 1
    assert sum(sample.value for sample in samples) == MAX_SERIES + 20


def test_time_per_token_of_a_streamed_answer_begins_with_its_first() -> None:
    bench = Bench()
    usage = Usage(prompt_tokens=50, completion_tokens=21)
    outcome = Outcome(Cause.COMPLETED, 200, duration_s=2.5, ttft_s=0.5, usage=usage)
    bench.telemetry.ended(LABELS, outcome)
    assert bench.value("llm_d_epp_request_streaming_tpot_seconds_count", **M) is None
    outcome.streaming = True
    bench.telemetry.ended(LABELS, outcome)
    assert bench.value("llm_d_epp_request_streaming_tpot_seconds_sum", **M) == 0.1
    outcome.usage = Usage(prompt_tokens=50, completion_tokens=1)
    bench.telemetry.ended(LABELS, outcome)
    assert bench.value("llm_d_epp_request_streaming_tpot_seconds_count", **M) == 1


def test_older_names_add_up_what_they_do_not_tell_apart() -> None:
    bench = Bench()
    for fairness in ("a", "b"):
        bench.telemetry.request_received(RequestLabels("m", "t", fairness, 1), 100)
        bench.telemetry.ended(RequestLabels("m", "t", fairness, 1), Outcome(Cause.COMPLETED, 200, duration_s=2.0))
        bench.pick(labels=RequestLabels("m", "t", fairness, 1))
    models = {"model_name": "m", "target_model_name": "t"}
    assert bench.value("inference_objective_request_total", **models, priority="1") == 2
    assert bench.value("inference_objective_running_requests", model_name="m") == 2
    assert bench.value("inference_objective_request_duration_seconds_sum", **models) == 4.0
    assert bench.value("inference_objective_request_duration_seconds_bucket", **models, le="1.5") == 0
    assert bench.value("inference_objective_request_duration_seconds_bucket", **models, le="2.0") == 2


def test_older_names_are_off_by_default() -> None:
    bench = everything()
    names = [family.name for family in Exposition(bench.telemetry, bench.pool, bench.ledger).collect()]
    assert not [name for name in names if name.startswith(OLDER)]


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


def test_a_page_that_is_copied_in_slices_is_whole_while_requests_go_on() -> None:
    bench = Bench()
    for number in range(MAX_HISTOGRAM_SETS):
        observed(bench, RequestLabels(f"m{number}", f"m{number}", "a", 0))
    exposition = Exposition(bench.telemetry, bench.pool, bench.ledger)
    slices = 0
    for frozen in exposition.freezing():  # noqa: B007 - the last one is whole
        slices += 1
        bench.telemetry.request_received(RequestLabels(f"new{slices}", "m", "b", 0), 10)
        bench.telemetry.plugin("Scorer", f"new{slices}", "x")
    assert slices > 3
    counted = {
        sample.labels["model_name"]
        for family in frozen.collect()
        if family.name == "llm_d_epp_request_size_bytes"
        for sample in family.samples
    }
    assert counted >= {f"m{number}" for number in range(MAX_HISTOGRAM_SETS)}
