import io
import math

import pytest
from rich.console import Console

from epp.lab.demo.counters import Counters, read
from epp.lab.demo.load import Sample
from epp.lab.demo.result import summarise
from epp.lab.demo.screen import Progress, comparison, endpoint_table, ratio, seconds
from epp.lab.stats import percentile

EXPOSITION = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 100.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 7.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 3.5
"""


def test_counters_are_read_from_vllms_metrics_and_summed_over_labels() -> None:
    counters = read(EXPOSITION)
    assert (counters.requests, counters.running) == (7, 3)
    assert (counters.gpu_share, counters.cpu_share, counters.miss_share) == (0.25, 0.5, 0.25)
    assert counters.mean_ttft_s == 0.5


def test_counters_since_a_reading_leave_out_what_was_before_and_keep_gauges() -> None:
    counters = read(EXPOSITION)
    since = (counters + counters).since(counters)
    assert since.requests == 7
    assert since.prompt_tokens == 200
    assert since.running == 6


def test_an_endpoint_without_traffic_has_no_shares_and_no_ttft() -> None:
    assert read("") == Counters()
    assert (Counters().gpu_share, Counters().miss_share, Counters().mean_ttft_s) == (0.0, 0.0, None)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 11)]
    assert percentile(values, 0.9) == 9.0
    assert percentile(values, 1.0) == 10.0
    assert percentile([5.0], 0.9) == 5.0
    assert math.isnan(percentile([], 0.9))


def test_a_summary_counts_failures_as_errors_and_in_nothing_else() -> None:
    samples = [
        Sample(0, ttft_s=0.1, e2e_s=1.0, prompt_tokens=100, output_tokens=10),
        Sample(0, ttft_s=0.3, e2e_s=2.0, prompt_tokens=100, output_tokens=10),
        Sample(1, ttft_s=9.0, e2e_s=9.0, error="HTTP 503"),
        Sample(1, ttft_s=None, e2e_s=0.1, error="HTTP 503"),
    ]
    result = summarise("a", "A", samples, 2.0, read(EXPOSITION))
    assert result.requests == 4
    assert result.errors == {"HTTP 503": 2}
    assert result.mean_ttft_s == pytest.approx(0.2)
    assert result.p90_ttft_s == 0.3
    assert result.mean_e2e_s == 1.5
    assert result.requests_per_s == 1.0
    assert result.tokens_per_s == 110.0


def printed(console: Console) -> str:
    return console.export_text()


def plain_console() -> Console:
    return Console(width=120, record=True, force_terminal=False)


def test_the_comparison_shows_each_run_as_a_multiple_of_the_first() -> None:
    base = [Sample(0, 0.2, 1.0)]
    better = [Sample(0, 0.1, 1.0)]
    results = [
        summarise("a", "round robin", base, 2.0, Counters(prompt_tokens=10)),
        summarise("b", "tier-aware", better, 1.0, Counters(prompt_tokens=10, gpu_tokens=2, cpu_tokens=5)),
    ]
    console = plain_console()
    console.print(comparison(results))
    lines = printed(console).splitlines()
    (at,) = [i for i, line in enumerate(lines) if "tier-aware" in line]
    for figure in ("100 ms", "1.0/s", "20%", "50%", "30%"):
        assert figure in lines[at]
    for factor in ("x0.50", "x2.00"):
        assert factor in lines[at + 1]


def test_the_endpoint_table_names_every_endpoint_and_its_hits() -> None:
    console = plain_console()
    console.print(endpoint_table({"10.0.0.1:80": read(EXPOSITION), "10.0.0.2:80": Counters()}))
    text = printed(console)
    assert "10.0.0.1:80" in text
    assert "500 ms" in text
    assert "10.0.0.2:80" in text


def test_without_a_terminal_progress_is_plain_lines() -> None:
    console = plain_console()
    with Progress(console, "round robin", 10) as progress:
        progress.sample(Sample(0, 0.1, 0.2))
        progress.sample(Sample(0, None, 0.2, error="HTTP 503"))
        progress.show({}, now=progress.began + 6.0)
        progress.show({}, now=progress.began + 7.0)
    text = printed(console)
    assert "round robin: 10 requests ..." in text
    assert text.count("2/10 requests in 6 s, mean TTFT 100 ms") == 1
    assert "1 FAILED" in text
    assert "7 s" not in text


def test_on_a_terminal_the_table_is_live() -> None:
    console = Console(width=120, force_terminal=True, record=True)
    with Progress(console, "round robin", 10) as progress:
        progress.sample(Sample(0, 0.1, 0.2))
        progress.show({"10.0.0.1:80": read(EXPOSITION)}, now=progress.began + 1.0)
    text = printed(console)
    assert "1/10" in text
    assert "10.0.0.1:80" in text


def test_durations_read_well() -> None:
    assert [seconds(value) for value in (0.0124, 0.9, 1.234, math.nan)] == ["12 ms", "900 ms", "1.23 s", "-"]
    assert ratio(1.0, 0.0) == ""


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    counters = Counters(prompt_tokens=10, gpu_tokens=2, cpu_tokens=5)
    result = summarise("b", "GPU-only prefix 2:2:2", [Sample(0, 0.4567, 1.0)], 1.0, counters)
    screen = io.StringIO()
    console = Console(width=80, file=screen, highlight=False)
    console.print(comparison([result, result]))
    console.print(endpoint_table({"127.0.0.1:43773": counters}))
    text = screen.getvalue()
    assert "\u2026" not in text, "nothing is cut"
    assert "GPU-only" in text
