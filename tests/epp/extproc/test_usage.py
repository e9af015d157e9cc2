"""Usage is found in a response that is cut into any pieces; invalid bytes are skipped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Usage
from epp.extproc.usage import DOCUMENT_BYTES, LINE_BYTES, DocumentUsage, EventUsage
from scorers.base import Tier

SAID = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16, "prompt_tokens_details": {"cached_tokens": 8}}
MEANT = Usage(prompt_tokens=11, completion_tokens=5, cached_tokens=8)


def stream(*events: object, newline: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event)}" for event in events] + ["data: [DONE]"] * done
    return "".join(line + newline * 2 for line in lines).encode()


STREAMS = {
    "last chunk": stream({"choices": [{"text": "x"}]}, {"choices": [], "usage": SAID}),
    "crlf": stream({"usage": None}, {"usage": SAID}, newline="\r\n"),
    "cr": stream({"usage": None}, {"usage": SAID}, newline="\r"),
    "every chunk": stream({"usage": {"prompt_tokens": 11, "completion_tokens": 1}}, {"usage": SAID}),
    "responses": stream(
        {"type": "response.created", "response": {"usage": None}},
        {
            "type": "response.completed",
            "response": {
                "usage": {"input_tokens": 11, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 8}}
            },
        },
        done=False,
    ),
    "no space, unended": b'data:{"usage":{"prompt_tokens":11,"completion_tokens":5,'
    b'"prompt_tokens_details":{"cached_tokens":8}}}',
    "noise around": b'\n: comment "usage"\nevent: usage\nid: 3\ndata: "usage"\ndata: {"usage": 3}\n'
    + stream({"usage": SAID}),
    "anthropic": stream(
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 8}}},
        {"type": "content_block_delta", "delta": {"text": '"usage"'}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
        done=False,
    ),
    "anthropic, cumulative": stream(
        {"message": {"usage": {"input_tokens": 2, "output_tokens": 1, "cache_creation_input_tokens": 0}}},
        {"usage": {"output_tokens": 2}},
        {"usage": {"input_tokens": 3, "cache_read_input_tokens": 8, "output_tokens": 5}},
    ),
    "sglang": stream(
        {"text": "x", "meta_info": {"prompt_tokens": 11, "completion_tokens": 1, "cached_tokens": 8}},
        {"text": "xy", "meta_info": {"prompt_tokens": 11, "completion_tokens": 5, "cached_tokens": 8}},
    ),
    "quoted in the text": stream({"usage": SAID}, {"choices": [{"text": '"usage": {"prompt_tokens": 99}'}]}),
}


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_split_of_a_stream_gives_the_same_usage(name: str, data: st.DataObject) -> None:
    body = STREAMS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    reader = EventUsage()
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        reader.feed(body[start:end])
    reader.end()
    assert reader.usage == MEANT


DOCUMENTS: list[dict[str, object]] = [
    {"choices": [{"text": "x"}], "usage": SAID},
    {"content": [], "usage": {"input_tokens": 1, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 2,
                              "output_tokens": 5}},
    {"text": "x", "meta_info": {"prompt_tokens": 11, "completion_tokens": 5, "cached_tokens": 8}},
]  # fmt: skip


@given(st.sampled_from(DOCUMENTS), st.lists(st.integers(0, 60), max_size=6))
def test_any_split_of_a_document_gives_the_same_usage(document: dict[str, object], cuts: list[int]) -> None:
    body = json.dumps(document).encode()
    cuts = sorted(min(cut, len(body)) for cut in cuts)
    reader = DocumentUsage()
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        reader.feed(body[start:end])
    reader.end()
    assert reader.usage == MEANT


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b'{"usage":', b"\n", b"\r"]), max_size=12))
def test_garbage_is_no_usage_and_no_error(chunks: list[bytes]) -> None:
    for reader in (EventUsage(), DocumentUsage()):
        for chunk in chunks:
            reader.feed(chunk)
        reader.end()


@pytest.mark.parametrize("chunk", [1_000, LINE_BYTES, 3 * LINE_BYTES])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_line_too_long_to_keep_is_skipped_and_the_next_one_is_read(chunk: int, newline: str) -> None:
    body = stream({"usage": {"prompt_tokens": 1}, "text": "x" * LINE_BYTES}, {"usage": SAID}, newline=newline)
    reader = EventUsage()
    for start in range(0, len(body), chunk):
        reader.feed(body[start : start + chunk])
    reader.end()
    assert reader.usage == MEANT


def test_a_document_too_large_to_keep_has_no_usage() -> None:
    reader = DocumentUsage()
    for _ in range(5):
        reader.feed(b" " * (DOCUMENT_BYTES // 4))
    reader.feed(json.dumps({"usage": SAID}).encode())
    reader.end()
    assert reader.usage is None


@pytest.mark.parametrize("said", [None, 3, [], "x", {"prompt_tokens": "many"}, {"prompt_tokens_details": 3}])
def test_usage_of_another_shape_is_none(said: object) -> None:
    reader = DocumentUsage()
    reader.feed(json.dumps({"usage": said}).encode())
    reader.end()
    assert reader.usage is None


def test_what_usage_does_not_say_is_zero() -> None:
    reader = DocumentUsage()
    reader.feed(json.dumps({"usage": {"prompt_tokens": 3, "prompt_tokens_details": None}}).encode())
    reader.end()
    assert reader.usage == Usage(prompt_tokens=3)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (b'{"usage": {"prompt_tokens": 3}}', None),
        (b'{"usage": {"prompt_tokens": 3, "prompt_tokens_details": null}}', None),
        (b'{"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}}', 0),
        (b'{"usage": {"input_tokens": 3, "cache_read_input_tokens": 0}}', 0),
    ],
)
def test_no_cached_tokens_are_something_else_than_none_that_were_told(said: bytes, meant: int | None) -> None:
    reader = DocumentUsage()
    reader.feed(said)
    reader.end()
    assert reader.usage == Usage(prompt_tokens=3, cached_tokens=meant)


REPORT = {"prompt_tokens": 11, "cached_tokens_by_tier": {"gpu": 2, "cpu": 6, "tape": 9}}


def read_whole(**answer: object) -> Usage | None:
    reader = DocumentUsage()
    reader.feed(json.dumps(answer).encode())
    reader.end()
    return reader.usage


def test_kvengines_report_says_which_tier_the_cached_tokens_came_from() -> None:
    told = read_whole(usage=SAID, kv_transfer_params=REPORT)
    assert told is not None
    assert (told.cached_tokens, told.cached_by_tier) == (8, {Tier.GPU: 2, Tier.CPU: 6})


def test_kvengines_report_tells_the_cached_tokens_where_the_usage_does_not() -> None:
    told = read_whole(usage={"prompt_tokens": 11}, kv_transfer_params=REPORT)
    assert told is not None
    assert told.cached_tokens == 8


@pytest.mark.parametrize(
    "other",
    [
        None,
        3,
        {"do_remote_prefill": True, "remote_block_ids": [1, 2]},
        {"prompt_tokens": "11", "cached_tokens_by_tier": {"gpu": 2}},
        {"prompt_tokens": 10, "cached_tokens_by_tier": {"gpu": 2}},  # of one of several prompts
        {"prompt_tokens": 11, "cached_tokens_by_tier": {"gpu": -1}},
        {"prompt_tokens": 11, "cached_tokens_by_tier": {"gpu": 12}},
        {"prompt_tokens": 11, "cached_tokens_by_tier": {}},
    ],
)
def test_what_is_no_report_of_the_same_prompt_leaves_the_usage_alone(other: object) -> None:
    assert read_whole(usage=SAID, kv_transfer_params=other) == MEANT
