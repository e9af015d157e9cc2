"""Five gauges out of a page, against the library's parser and by example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from epp.pool.seat import EngineMetrics
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.reader import MAX_BLOCK_TOKENS, MAX_BLOCKS, MAX_REQUESTS, EngineReader
from epp.scrape.reading.samples import MAX_LABELS, MAX_MENTIONS, MAX_SERIES, labels_of, samples
from epp.scrape.reading.specs import BUILT_IN, MetricSpec
from epp.scrape.reading.specs import VLLM as VLLM_SPEC
from scorers.base import LoraState

VLLM = b"""\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 11000.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
# HELP vllm:num_requests_waiting_by_reason Same, by reason.
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a, b",waiting_lora_adapters=""} 1.7e+09
vllm:cache_config_info{block_size="16",num_cpu_blocks="None",num_gpu_blocks="27000",engine="0"} 1.0
"""

RUNNING = b"vllm:num_requests_running"

read_engine = EngineReader(VLLM_SPEC).read


def test_a_page_of_vllm() -> None:
    assert read_engine(VLLM) == EngineMetrics(
        waiting=7,
        running=3,
        kv_usage=0.25,
        block_tokens=16,
        gpu_blocks=27000,
        lora=LoraState(running=frozenset({"a", "b"}), waiting=frozenset(), max_loras=4),
        models=frozenset({"m"}),
    )


def test_line_ends_may_be_crlf_and_the_last_may_be_missing() -> None:
    assert read_engine(VLLM.replace(b"\n", b"\r\n")) == read_engine(VLLM) == read_engine(VLLM.rstrip())


@pytest.mark.parametrize(
    ("line", "running"),
    [
        (b"vllm:num_requests_running 4", 4),
        (b"  vllm:num_requests_running\t4  ", 4),
        (b"vllm:num_requests_running{} 4", 4),
        (b'vllm:num_requests_running { engine = "0" , } 4', 4),
        (b'vllm:num_requests_running{model_name="a}b,\\"{c\\\\"} 4', 4),
        (b'vllm:num_requests_running{engine="0"} 4 1700000000000', 4),
        (b"vllm:num_requests_running 4e0", 4),
        (b"vllm:num_requests_running 1.2E+1", 12),
        (b'vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_running{engine="1"} 5', 9),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_running 5", 5),
        (b"vllm:num_requests_running +Inf\nvllm:num_requests_running 5", 5),
        (b"vllm:num_requests_running -3", 0),
        (b"vllm:num_requests_running 1e6", 10**6),
    ],
)
def test_every_way_to_write_a_gauge(line: bytes, running: int) -> None:
    assert read_engine(line).running == running
    assert read_engine(b"other 1\n" + line + b"\nother 2\n").running == running


@pytest.mark.parametrize("value", [b"1e30", b"1e300", b"1000001", b"NaN", b"+Inf"])
def test_an_impossible_number_is_ignored_and_named(value: bytes) -> None:
    engine = read_engine(b"vllm:num_requests_waiting 2\nvllm:num_requests_running " + value + b"\n")
    assert (engine.waiting, engine.running, engine.partial) == (2, 0, True)
    (said,) = engine.doubted
    assert said.startswith("vllm:num_requests_running ")
    assert read_engine(b"vllm:num_requests_waiting 2\nvllm:num_requests_running 3\n").doubted == ()


def test_a_page_with_nothing_else_is_refused_with_the_numbers() -> None:
    with pytest.raises(ScrapeError, match=r"num_requests_running 1e\+30; at most 1,000,000 are believed"):
        read_engine(b"vllm:num_requests_running 1e30\n")


def test_names_in_comments_labels_and_longer_names_are_not_samples() -> None:
    page = b'# HELP vllm:num_requests_running vllm:num_requests_running 8\nx{a="vllm:num_requests_running 8"} 1\n'
    page += b"my_vllm:num_requests_running 8\nvllm:num_requests_running_total 8\nvllm:num_requests_waiting 2\n"
    assert (read_engine(page).running, read_engine(page).waiting) == (0, 2)


def test_the_older_name_of_kv_usage_counts_where_the_newer_is_absent() -> None:
    old = b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n"
    assert read_engine(old).kv_usage == 0.5
    assert read_engine(old + b"vllm:kv_cache_usage_perc 0.75\n").kv_usage == 0.75


def test_several_engines_behind_one_address_are_added_up() -> None:
    page = b"".join(
        line % (number, number)
        for number in (1, 2)
        for line in (
            b'vllm:num_requests_running{engine="%d"} %d\n',
            b'vllm:num_requests_waiting{engine="%d"} %d0\n',
            b'vllm:kv_cache_usage_perc{engine="%d"} 0.%d\n',
            b'vllm:cache_config_info{engine="%d",block_size="32",num_gpu_blocks="%d000"} 1\n',
        )
    )
    engine = read_engine(page)
    assert (engine.running, engine.waiting, engine.block_tokens, engine.gpu_blocks) == (3, 30, 32, 3000)
    assert engine.kv_usage == pytest.approx(0.15)


@pytest.mark.parametrize("written", [b"None", b"", b"0", b"-5", b"1.5", b"9" * 30, "١٦".encode()])
def test_a_cache_size_that_is_no_positive_number_is_unknown(written: bytes) -> None:
    page = VLLM.replace(b'"16"', b'"' + written + b'"').replace(b'"27000"', b'"' + written + b'"')
    assert (read_engine(page).block_tokens, read_engine(page).gpu_blocks) == (None, None)


def test_the_newest_lora_sample_counts_wherever_it_stands() -> None:
    info = b'vllm:lora_requests_info{max_lora="%d",running_lora_adapters="%s",waiting_lora_adapters="w"} %d\n'
    page = VLLM + info % (2, b"new", 1_900_000_000) + info % (1, b"old", 1_600_000_000)
    assert read_engine(page).lora == LoraState(frozenset({"new"}), frozenset({"w"}), 2)


@pytest.mark.parametrize(
    ("written", "began_s"),
    [
        (b"process_start_time_seconds 1.76374e+09\n", 1.76374e9),
        (b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 3.5\n", 3.5),
        (b'kvengine:start_timestamp_seconds{engine="0"} 7\nkvengine:start_timestamp_seconds{engine="1"} 9\n', 9.0),
        (b"process_start_time_seconds 5\nkvengine:start_timestamp_seconds 7\n", 5.0),
        (b"kvengine:start_timestamp_seconds 0\n", None),
        (b"kvengine:start_timestamp_seconds 99\nkvengine:clock_timestamp_seconds 100\n", 99.0),
        (b"kvengine:start_timestamp_seconds 1e12\nkvengine:clock_timestamp_seconds 100\n", None),
        (b"process_start_time_seconds NaN\n", None),
        (b"process_start_time_seconds what\n", None),
        (b"", None),
    ],
)
def test_the_start_time_of_an_engine_is_read_where_it_is_reported(written: bytes, began_s: float | None) -> None:
    page = written + b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n"
    assert EngineReader(VLLM_SPEC).read(page).started_s == began_s


def test_a_page_of_something_else_is_refused_with_a_hint() -> None:
    with pytest.raises(ScrapeError, match=r"neither vllm:num_requests_waiting nor .*; label the endpoint llm-d.ai/eng"):
        read_engine(b"<html>hello</html>")


@pytest.mark.parametrize(
    "line",
    [
        b"vllm:num_requests_running x",
        b"vllm:num_requests_running ",
        b"vllm:num_requests_running 1_000",
        b"vllm:num_requests_running 1 2 3",
        b'vllm:num_requests_running{engine="0" 4',
        b'vllm:num_requests_running{engine="0"}',
        b"vllm:num_requests_running{" + b"x" * 1_100_000 + b"} 1",
        b"vllm:num_requests_running 4\nvllm:cache_config_info{block_size=16} 1",
        b'vllm:num_requests_running 4\nvllm:cache_config_info{block_size="16" num_gpu_blocks="1"} 1',
    ],
)
def test_a_malformed_line_is_an_error_that_shows_it_in_short(line: bytes) -> None:
    with pytest.raises(ScrapeError) as caught:
        read_engine(line)
    assert len(str(caught.value)) < 300


LABELS = st.dictionaries(
    st.from_regex(r"(?!__)[a-z_][a-z0-9_]{0,5}", fullmatch=True),  # the library refuses reserved names
    st.text(st.sampled_from('ab"\\{}=,# \té'), max_size=6) | st.just("line\nbreak"),
    max_size=3,
)
VALUES = st.floats(width=32) | st.integers(-5, 10**6).map(float)
NAMES = st.sampled_from(["vllm:num_requests_running", "vllm:num_requests_runnin", "vllm:num_requests_running_x", "up"])


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def line(name: str, labels: Mapping[str, str], value: float, style: int) -> str:
    space = " " * (style % 3 == 0)
    written = ",".join(f'{key}{space}={space}"{escaped(text)}"' for key, text in labels.items())
    block = f"{{{written}{',' if style % 2 and labels else ''}}}" if labels or style % 5 == 0 else ""
    number = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN" if math.isnan(value) else repr(value))
    return f"{name}{block} {number}{' 1700000000000' if style % 7 == 0 else ''}"


@given(st.lists(st.tuples(NAMES, LABELS, VALUES, st.integers(0, 209)), max_size=8))
@settings(deadline=None)
def test_samples_are_those_that_the_library_finds(lines: list[tuple[str, dict[str, str], float, int]]) -> None:
    text = "".join(f"{line(*spec)}\n" for spec in lines)
    expected = [
        (found.labels, found.value)
        for metric in text_string_to_metric_families(text)
        for found in metric.samples
        if found.name == RUNNING.decode()
    ]
    ours = [(labels_of(sample.labels), sample.value) for sample in samples(text.encode(), RUNNING)]
    assert repr(ours) == repr(expected)  # NaN differs from itself


READERS = [EngineReader(replace(spec, attributes=(("a", MetricSpec("a")),))) for spec in BUILT_IN.values()]
WORDS = sorted(
    {metric.name for reader in READERS for metric in (reader.spec.waiting, reader.spec.running) if metric}
    | {metric.name for reader in READERS for metric in reader.spec.kv_usage}
    | {metric.name for reader in READERS for metric in (reader.spec.block_tokens, reader.spec.gpu_blocks) if metric}
)
PIECES = st.sampled_from(
    [b"vllm:cache_config_info", b"vllm:lora_requests_info", b"a", b'{block_size="16"}', b'{a="', b'"', b"}", b"{",
     b'{request_type="waiting"}', b'{kv_cache_block_type="tokens_per"}', b" 1", b" -7", b" NaN", b" 1e308", b" -Inf",
     b"\n", b"\n", b"\n", b"\r\n", b",", b"=", b"\\", b"# ", b" 1e999", b"\xff", b"\0"]
    + [word.encode() for word in WORDS]
)  # fmt: skip
LINES = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}\n".encode(),
    st.sampled_from([*WORDS, "a", "vllm:cache_config_info"]),
    st.sampled_from(["", '{a="1"}', '{a="2"}', '{block_size="9999999999"}', '{request_type="scheduled"}']),
    st.floats() | st.integers(),
)


@given(st.lists(PIECES | LINES | st.binary(max_size=3), max_size=40).map(b"".join), st.sampled_from(READERS))
def test_any_bytes_are_finite_numbers_in_range_or_refused(page: bytes, reader: EngineReader) -> None:
    try:
        engine = reader.read(page)
        reader.missing(page)
    except ScrapeError as error:
        shown = str(error)
        assert len(shown) < 500
        return
    assert 0 <= engine.waiting <= MAX_REQUESTS
    assert 0 <= engine.running <= MAX_REQUESTS
    assert 0 <= engine.kv_usage <= 1
    assert engine.block_tokens is None or 1 <= engine.block_tokens <= MAX_BLOCK_TOKENS
    assert engine.gpu_blocks is None or 1 <= engine.gpu_blocks <= MAX_BLOCKS
    assert all(map(math.isfinite, engine.attributes.values()))


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"".join(RUNNING + b'{a="%d"} 1\n' % n for n in range(MAX_SERIES + 1)), "more than 4096 series"),
        (b"# vllm:num_requests_running\n" * (MAX_MENTIONS + 1), "mentions vllm:num_requests_running more than 16384"),
        (VLLM + b"vllm:cache_config_info{" + b'a="b",' * (MAX_LABELS + 1) + b"} 1\n", "are more than 256"),
        (VLLM + b"".join(b'vllm:cache_config_info{a="%d%b"} 1\n' % (n, b"x" * 300) for n in range(1000)),
         "labels of one metric have"),
    ],
)  # fmt: skip
def test_what_would_take_long_to_read_is_refused(page: bytes, message: str) -> None:
    with pytest.raises(ScrapeError, match=message):
        read_engine(page)


def test_of_more_sets_of_adapters_than_are_read_the_last_on_the_page_count() -> None:
    info = b'vllm:lora_requests_info{max_lora="4",running_lora_adapters="%d",waiting_lora_adapters=""} %d\n'
    page = VLLM + b"".join(info % (n, 2_000_000_000 + n) for n in range(2 * MAX_SERIES))
    assert read_engine(page).lora.running == {str(2 * MAX_SERIES - 1)}


def test_a_series_that_is_there_twice_counts_once() -> None:
    assert (
        read_engine(b'vllm:num_requests_running{a="1"} 4\n' * 2 + b'vllm:num_requests_running{a="2"} 3\n').running == 7
    )


def test_sizes_beyond_belief_are_unknown() -> None:
    page = b'vllm:num_requests_running 1\nvllm:cache_config_info{block_size="%d",num_gpu_blocks="%d"} 1\n'
    assert read_engine(page % (MAX_BLOCK_TOKENS, MAX_BLOCKS)).gpu_blocks == MAX_BLOCKS
    beyond = read_engine(page % (MAX_BLOCK_TOKENS + 1, MAX_BLOCKS + 1))
    assert (beyond.block_tokens, beyond.gpu_blocks) == (None, None)
