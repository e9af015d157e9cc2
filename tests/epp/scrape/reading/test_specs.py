"""Specs of metrics, and the table of engines."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.scrape.reading.specs import BUILT_IN, EngineSpecs, MetricSpec, parse_spec

LABEL = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("vllm:num_requests_waiting", MetricSpec("vllm:num_requests_waiting")),
        ("  a  ", MetricSpec("a")),
        ("a{}", MetricSpec("a")),
        ("a{b=c}", MetricSpec("a", (("b", "c"),))),
        ('a{b="c"}', MetricSpec("a", (("b", "c"),))),
        ('a { b = "c d" , e=f-g.h } ', MetricSpec("a", (("b", "c d"), ("e", "f-g.h")))),
        ('a{b=""}', MetricSpec("a", (("b", ""),))),
    ],
)
def test_a_spec_is_a_name_and_perhaps_labels(text: str, spec: MetricSpec) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin with the name of a metric"),
        ("1a", "does not begin with the name"),
        ("{a=b}", "does not begin with the name"),
        ("a b", "behind the name; write name or name{label=value,...}"),
        ("a-b", "behind the name"),
        ("a{b=c", "behind the name"),
        ("a{b=c}}", "is not label=value"),
        ("a{", "behind the name"),
        ("a{b}", "'b' in 'a{b}' is not label=value"),
        ("a{b=c,}", "'' in "),
        ("a{b!=c}", "only equality can be asked for"),
        ("a{b=~c}", "only equality"),
        ("a{b=c d}", "is not label=value"),
        ("a{b=c,b=d}", "asks for the label 'b' twice"),
        ("a" * 1025, "has 1025 characters, and 1024 are read"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace(".", r"\.")):
        parse_spec(text)


@given(LABEL, st.dictionaries(LABEL, st.text("abz09 .:=-é", max_size=6).filter(lambda v: "," not in v), max_size=3))
def test_a_spec_can_be_written_and_read_again(name: str, labels: dict[str, str]) -> None:
    spec = MetricSpec(name, tuple(labels.items()))
    assert parse_spec(str(spec)) == spec


@given(st.text(max_size=30) | st.text('ab{}=,"\\ \n', max_size=20))
def test_any_text_is_a_spec_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_spec(text).name in text


def test_the_label_of_an_endpoint_names_its_engine_the_newer_one_first() -> None:
    engines = EngineSpecs()
    old, new = "inference.networking.k8s.io/engine-type", "llm-d.ai/engine-type"
    assert engines.named_by({}) == "vllm"
    assert engines.named_by({old: "triton"}) == "triton"
    assert engines.named_by({old: "triton", new: "sglang"}) == "sglang"
    assert engines.named_by({old: "triton", new: ""}) == "triton"


def test_the_built_in_engines_are_the_go_pickers() -> None:
    assert set(BUILT_IN) == {"vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"}
    assert {name: str(spec.waiting) for name, spec in BUILT_IN.items()} == {
        "vllm": "vllm:num_requests_waiting",
        "sglang": "sglang:num_queue_reqs",
        "trtllm-serve": "trtllm_num_requests_waiting",
        "triton-tensorrt-llm": 'nv_trt_llm_request_metrics{request_type="waiting"}',
        "triton": "nv_inference_pending_request_count",
    }
