"""The header ``traceparent``, and which requests are sampled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision as Drawn
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from epp.tracing.context import HEADER_BYTES, TraceContext, parent_of
from epp.tracing.sampler import Sampler, sampler_named

IDS = st.integers(1, (1 << 128) - 1)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@given(st.builds(TraceContext, IDS, st.integers(1, (1 << 64) - 1), st.booleans()))
def test_what_is_written_is_read_again(context: TraceContext) -> None:
    assert parent_of(context.header) == context
    assert len(context.header) == HEADER_BYTES


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-٠١",
    ],
)
def test_what_is_no_traceparent_is_nobody_s(value: str) -> None:
    assert parent_of(value) is None


def test_later_versions_may_say_more() -> None:
    parent = parent_of(f"01-{TRACE}-{SPAN}-03-more")
    assert parent == TraceContext(int(TRACE, 16), int(SPAN, 16), True)


@given(
    st.text(alphabet="0123456789abcdefF-", max_size=60)
    | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
)
def test_nothing_is_read_that_the_library_does_not_read(value: str) -> None:
    ours = parent_of(value)
    extracted = TraceContextTextMapPropagator().extract({"traceparent": value})
    theirs = [span.get_span_context() for span in extracted.values()]  # type: ignore[attr-defined]
    if ours is not None:
        assert [(c.trace_id, c.span_id) for c in theirs] == [(ours.trace_id, ours.span_id)]


@given(IDS, st.sampled_from([0.0, 0.1, 0.5, 0.999, 1.0]))
def test_the_same_traces_are_chosen_as_by_the_library(trace_id: int, ratio: float) -> None:
    theirs = TraceIdRatioBased(ratio).should_sample(None, trace_id, "x").decision is Drawn.RECORD_AND_SAMPLE
    assert Sampler(ratio, by_parent=False).samples(trace_id, None) is theirs


@pytest.mark.parametrize("sampled", [True, False])
def test_the_caller_has_decided_already(sampled: bool) -> None:
    parent = TraceContext(1, 1, sampled)
    assert Sampler(0.0 if sampled else 1.0).samples(1, parent) is sampled
    assert Sampler(1.0 if not sampled else 0.0, by_parent=False).samples(1 << 63, parent) is not sampled


@pytest.mark.parametrize(
    ("name", "argument", "sampler"),
    [
        ("", "", Sampler(0.1, True)),
        ("", "0.5", Sampler(0.5, True)),
        ("parentbased_traceidratio", "1", Sampler(1.0, True)),
        ("traceidratio", "0.25", Sampler(0.25, False)),
        ("always_on", "", Sampler(1.0, False)),
        ("parentbased_always_off", "0.5", Sampler(0.0, True)),
    ],
)
def test_samplers_have_opentelemetry_s_names(name: str, argument: str, sampler: Sampler) -> None:
    assert sampler_named(name, argument) == sampler


@pytest.mark.parametrize(("name", "argument"), [("jaeger_remote", ""), ("", "2"), ("", "-0.1"), ("", "x"), ("", "nan")])
def test_a_wrong_sampler_is_an_error_with_its_name_and_value(name: str, argument: str) -> None:
    with pytest.raises(ValueError, match=f"={name or argument}: must be "):
        sampler_named(name, argument)
