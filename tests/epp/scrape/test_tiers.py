"""Memory tiers on metrics pages: kvengine's gauges, vLLM's settings, and anything else on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.lab.engine.engine import Engine
from epp.lab.engine.exposition import Exposition
from epp.lab.engine.served import ServedModels
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.tiers import LOOK_EVERY, TierReader, kvengine_part
from scorers.base import Tier, TierReport
from tests.epp.lab.engine.bench import tiny

CONFIG = (
    b'vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 1\n'
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="9271",enable_prefix_caching="True"%b} 1\n'
)
GAUGES = {
    "capacity_tokens": (4096, 65536),
    "resident_tokens": (1024, 2048),
    "block_tokens": (16, 256),
    "store_after": (1, 2),
    "stores_decoded": (1, 0),
    "eviction_horizon_timestamp_seconds": (0, 1500.0),
    "horizon_resident_tokens": (0, 512),
}


def kvengine(
    gauges: Mapping[str, tuple[float, float]] = GAUGES, clock_s: float = 2000, start_s: float = 1000, engine: int = 0
) -> bytes:
    def lines() -> Iterator[str]:
        for name, values in gauges.items():
            yield f"# HELP kvengine:tier_{name} Text.\n# TYPE kvengine:tier_{name} gauge\n"
            for tier, value in zip(("gpu", "cpu"), values, strict=True):
                yield f'kvengine:tier_{name}{{engine="{engine}",model_name="m",tier="{tier}"}} {value}\n'
        yield f'kvengine:clock_timestamp_seconds{{engine="{engine}"}} {clock_s}\n'
        yield f'kvengine:start_timestamp_seconds{{engine="{engine}"}} {start_s}\n'

    return "".join(lines()).encode()


def read(page: bytes, received_at: float = 500.0) -> Mapping[Tier, TierReport]:
    return TierReader().read(page, received_at)


def test_kvengines_gauges_with_the_horizon_on_our_clock() -> None:
    assert read(CONFIG % b"" + kvengine() + b"python_info 1\n") == {
        Tier.GPU: TierReport(4096, 1024, 1000 - 1500.0, 1, True, 16, horizon_tokens=0),
        Tier.CPU: TierReport(65536, 2048, 1500.0 - 1500.0, 2, False, 256, horizon_tokens=512),
    }


def loads(tokens: float, seconds: float) -> bytes:
    return (
        f'kvengine:loaded_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
        f'kvengine:job_seconds_sum{{direction="store",engine="0"}} 99.0\n'
        f'kvengine:job_seconds_sum{{direction="load",engine="0"}} {seconds}\n'
    ).encode()


def test_what_a_load_takes_is_that_of_all_loads_since_the_start() -> None:
    reports = read(kvengine() + loads(1e6, 2.9876))
    assert reports[Tier.CPU].load_token_s == 3.0e-6
    assert reports[Tier.GPU].load_token_s is None


@pytest.mark.parametrize("said", [b"", loads(100, 0.1), loads(1e6, 0), loads(1e6, float("inf")), loads(1e400, 1)])
def test_too_few_loads_or_impossible_ones_say_nothing(said: bytes) -> None:
    assert read(kvengine() + said)[Tier.CPU].load_token_s is None


def test_an_engine_that_began_or_has_evicted_what_was_used_in_the_future_is_not_believed_of_that() -> None:
    for page in (kvengine(start_s=1e12), kvengine({**GAUGES, "eviction_horizon_timestamp_seconds": (1e12, 1e12)})):
        reports = read(page)
        assert [reports[tier].horizon_s for tier in (Tier.GPU, Tier.CPU)] == [None, None]
        assert reports[Tier.GPU].capacity_tokens == 4096
    assert read(kvengine(start_s=2030))[Tier.GPU].horizon_s == 530, "its processes' clocks need not agree to the second"


def test_nothing_that_was_used_before_the_engines_start_is_there() -> None:
    reader = TierReader()
    before = reader.read(kvengine(start_s=1000), 500.0)
    after = reader.read(kvengine(start_s=1990), 500.1)
    assert (before[Tier.GPU].horizon_s, after[Tier.GPU].horizon_s) == (-500.0, pytest.approx(490.0, abs=0.2))


def test_an_engine_without_a_report_on_tiers_has_none() -> None:
    assert read(kvengine(dict.fromkeys(GAUGES, (0, 0)), start_s=0)) == {}


def test_without_a_clock_or_with_several_engines_behind_one_address_there_is_no_horizon() -> None:
    without = kvengine().replace(b"kvengine:clock", b"kvengine:other")
    assert [report.horizon_s for report in read(without).values()] == [None, None]
    several = read(kvengine() + kvengine(engine=1))
    assert [report.horizon_s for report in several.values()] == [None, None]
    assert several[Tier.CPU].capacity_tokens == 2 * 65536


def test_a_page_without_kvengine_is_searched_for_it_rarely() -> None:
    class Page(bytes):
        searched = 0

        def __contains__(self, part: object) -> bool:
            self.searched += 1
            return super().__contains__(part)  # type: ignore[operator]

    reader, page = TierReader(), Page(CONFIG % b"")
    said = [reader.read(page, n) for n in range(2 * LOOK_EVERY)]
    assert page.searched == 2
    assert all(reports == {Tier.GPU: TierReport(9271 * 16, store_after=1, block_tokens=16)} for reports in said)


def test_after_a_failure_the_next_page_may_be_another_engines() -> None:
    reader = TierReader()
    reader.read(CONFIG % b"", 0)
    assert reader.read(kvengine(), 1) == {Tier.GPU: TierReport(9271 * 16, store_after=1, block_tokens=16)}
    reader.look_again()
    assert reader.read(kvengine(), 2).keys() == {Tier.GPU, Tier.CPU}
    assert reader.read(CONFIG % b"", 3) == {}
    assert reader.read(CONFIG % b"", 4).keys() == {Tier.GPU}


@pytest.mark.parametrize(
    ("labels", "more", "expected"),
    [
        (b',kv_cache_size_tokens="150000"', b"", {Tier.GPU: 150000}),
        (b',kv_cache_size_tokens="None"', b"", {Tier.GPU: 148336}),
        (b"", b'vllm:simple_kv_offload_info{backend="cpu",capacity_blocks="1000"} 1\n', {Tier.CPU: 16000}),
        (b"", b'vllm:simple_kv_offload_info{backend="disk",capacity_blocks="1000"} 1\n', {}),
        # 256 KiB of KV for each token of Qwen3-32B.
        (b',kv_offloading_size="100.0",kv_offloading_backend="native",cache_dtype="auto"', b"", {Tier.CPU: 409600}),
        (b',kv_offloading_size="100.0",kv_offloading_backend="native",cache_dtype="fp8"', b"", {Tier.CPU: 819200}),
        (b',kv_offloading_size="100.0",kv_offloading_backend="lmcache",cache_dtype="auto"', b"", {}),
        (b',kv_offloading_size="None",kv_offloading_backend="native"', b"", {}),
        (b',kv_offloading_size="1e400",cache_dtype="auto"', b"", {}),
        (b',cache_dtype="int4_per_token_head",kv_offloading_size="100.0"', b"", {}),
    ],
)
def test_vllms_own_settings_in_tokens(labels: bytes, more: bytes, expected: dict[Tier, int]) -> None:
    found = read(CONFIG % labels + more)
    told = {tier: report.capacity_tokens for tier, report in found.items()}
    assert told == {Tier.GPU: 148336} | expected


def test_bytes_mean_nothing_for_a_model_of_unknown_shape() -> None:
    labels = b',kv_offloading_size="100.0",kv_offloading_backend="native",cache_dtype="auto"'
    assert Tier.CPU not in read((CONFIG % labels).replace(b"Qwen/Qwen3-32B", b"mine"))
    assert Tier.CPU not in read((CONFIG % labels).replace(b"Qwen/Qwen3-32B", b"openai/gpt-oss-120b")), "windows"


def test_an_engine_that_keeps_no_prefixes_holds_nothing_that_can_be_found() -> None:
    page = (CONFIG % b"").replace(b"True", b"False")
    assert read(page) == {Tier.GPU: TierReport(0, store_after=0, block_tokens=16)}


def test_a_simulated_engine_says_as_much_as_kvengine() -> None:
    engine = Engine(tiny())
    page = Exposition(engine, lambda engine_s: engine_s, ServedModels("m", ["m"])).text()
    found = read(page)
    assert found.keys() == {Tier.GPU, Tier.CPU}
    for report in found.values():
        assert None not in (report.capacity_tokens, report.resident_tokens, report.horizon_s, report.block_tokens)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_is_on_a_page_is_read_or_refused(before: bytes, after: bytes) -> None:
    page = before + b"\n" + kvengine() + after
    assert b"\n" not in kvengine_part(before) or b"kvengine:" in before
    try:
        for report in read(page).values():
            assert report.capacity_tokens is None or report.capacity_tokens >= 0
    except ScrapeError:
        pass


@pytest.mark.parametrize("value", ["nan", "+Inf", "-1", "1e300"])
def test_impossible_numbers_are_ignored(value: str) -> None:
    page = kvengine().replace(b"65536", value.encode())
    report = read(page).get(Tier.CPU)
    assert report is None or report.capacity_tokens is None
