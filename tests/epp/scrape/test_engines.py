"""Pages of every kind of engine, as their reader parses them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from epp.pool.seat import EngineMetrics
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.reader import EngineReader
from epp.scrape.reading.specs import BUILT_IN, EngineSpec, MetricSpec

SGLANG = b"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0
sglang:num_queue_reqs_total{model_name="m"} 99.0
sglang:token_usage{model_name="m"} 0.25
"""
SGLANG_LABELS = b'sglang:cache_config_info{num_pages="2000",page_size="64"} 1.0\n'
SGLANG_GAUGES = b'sglang:page_size{model_name="m"} 32.0\nsglang:num_pages{model_name="m"} 4000.0\n'
TRTLLM = b"""\
trtllm_num_requests_waiting 7
trtllm_num_requests_running 3
trtllm_kv_cache_utilization 0.25
trtllm_kv_cache_tokens_per_block 32
trtllm_kv_cache_max_blocks 4000
"""
TRITON_TRTLLM = b"""\
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 7
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m",version="1"} 32
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 1000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="m",version="1"} 3000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 4000
"""
TRITON = b"""\
nv_inference_exec_count{model="m",version="1"} 123456
nv_inference_pending_request_count{model="a",version="1"} 5
nv_inference_pending_request_count{model="b",version="1"} 2
"""
FULL = EngineMetrics(waiting=7, running=3, kv_usage=0.25, block_tokens=32, gpu_blocks=4000)
M = frozenset({"m"})


@pytest.mark.parametrize(
    ("engine", "page", "said"),
    [
        ("sglang", SGLANG + SGLANG_GAUGES, replace(FULL, models=M)),
        ("sglang", SGLANG_LABELS + SGLANG + SGLANG_GAUGES, replace(FULL, models=M)),
        ("sglang", SGLANG + SGLANG_LABELS, EngineMetrics(7, 3, 0.25, 64, 2000, models=M)),
        ("sglang", SGLANG, EngineMetrics(7, 3, 0.25, models=M)),
        ("trtllm-serve", TRTLLM, FULL),
        ("triton-tensorrt-llm", TRITON_TRTLLM, FULL),
        ("triton", TRITON, EngineMetrics(waiting=7, partial=True)),
    ],
)
def test_a_page_of_each_engine(engine: str, page: bytes, said: EngineMetrics) -> None:
    assert EngineReader(BUILT_IN[engine]).read(page) == said


@pytest.mark.parametrize("engine", BUILT_IN)
def test_a_page_of_another_engine_is_refused_with_the_label_to_set(engine: str) -> None:
    with pytest.raises(ScrapeError, match=rf"so it is not from {engine}; label the endpoint llm-d\.ai/engine-type"):
        EngineReader(BUILT_IN[engine]).read(b"up 1\n")


def reader(**metrics: str) -> EngineReader:
    spec = EngineSpec(
        name="mine", waiting=MetricSpec("w"), attributes=tuple((k, MetricSpec(v)) for k, v in metrics.items())
    )
    return EngineReader(spec)


def test_custom_metrics_are_attributes_and_absent_ones_are_absent() -> None:
    page = b'w 1\nq{rank="0"} 2\nq{rank="1"} 3.5\nt -4\nbad NaN\n'
    assert reader(queue="q", temperature="t", bad="bad", none="n").read(page).attributes == {
        "queue": 5.5,
        "temperature": -4.0,
    }


def test_a_sum_beyond_all_numbers_is_absent() -> None:
    assert reader(q="q").read(b'w 1\nq{a="0"} 1e308\nq{a="1"} 1e308\n').attributes == {}


def test_a_spec_with_labels_means_the_samples_that_have_them_among_others() -> None:
    spec = EngineSpec(name="mine", waiting=MetricSpec("w", (("kind", "slow"), ("rank", "0"))))
    page = b'w{kind="slow",model="m",rank="0"} 1\nw{kind="slow",rank="1"} 2\nw{kind="fast",rank="0"} 4\nw 8\n'
    assert EngineReader(spec).read(page).waiting == 1


def test_what_a_decision_needs_and_a_page_lacks_is_named_as_it_is_written() -> None:
    vllm = EngineReader(BUILT_IN["vllm"])
    assert vllm.missing(b"vllm:num_requests_running 1\n") == ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
    assert (
        vllm.missing(b"vllm:num_requests_running 1\nvllm:num_requests_waiting 1\nvllm:gpu_cache_usage_perc 0\n") == []
    )
    tensorrt = EngineReader(BUILT_IN["triton-tensorrt-llm"])
    assert 'nv_trt_llm_request_metrics{request_type="scheduled"}' in tensorrt.missing(TRTLLM)


def test_an_engine_may_have_attributes_only() -> None:
    spec = EngineSpec(name="mine", attributes=(("q", MetricSpec("q")),))
    assert EngineReader(spec).read(b"q 3\n") == EngineMetrics(attributes={"q": 3.0}, partial=True)
