"""Token counts of vLLM's gRPC responses are found in whatever pieces they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Usage
from epp.extproc.grpc_usage import MESSAGE_BYTES, GrpcUsage
from epp.parsers.grpc_body import frame
from epp.pb.vllm_engine_pb2 import EmbedResponse, GenerateComplete, GenerateResponse, GenerateStreamChunk


def chunk(completion: int, *, index: int = 0, prompt: int = 11, cached: int = 8) -> GenerateResponse:
    part = GenerateStreamChunk(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, index=index)
    return GenerateResponse(chunk=part)


def complete(completion: int, *, index: int = 0, prompt: int = 11, cached: int = 8) -> GenerateResponse:
    whole = GenerateComplete(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, index=index)
    return GenerateResponse(complete=whole)


RESPONSES: dict[str, tuple[Sequence[Message], Usage]] = {
    "not streamed": ([complete(5)], Usage(11, 5, 8)),
    "streamed: the end repeats the last chunk": ([chunk(1), chunk(3), complete(3)], Usage(11, 4, 8)),
    "two samples": ([complete(5), complete(7, index=1)], Usage(11, 12, 8)),
    "two samples, streamed": (
        [chunk(1), chunk(1, index=1), chunk(2), complete(2), chunk(4, index=1), complete(4, index=1)],
        Usage(11, 8, 8),
    ),
    "nothing cached": ([complete(5, cached=0)], Usage(11, 5, 0)),
    "an embedding": ([EmbedResponse(prompt_tokens=9)], Usage(9, 0, None)),
    "an empty chunk first": ([chunk(0, prompt=0, cached=0), chunk(2)], Usage(11, 2, 8)),
}


def fed(body: bytes, cuts: Sequence[int] = ()) -> GrpcUsage:
    reader = GrpcUsage()
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    for start, end in pairwise(edges):
        reader.feed(body[start:end])
    reader.end()
    return reader


def framed(messages: Sequence[Message]) -> bytes:
    return b"".join(frame(message.SerializeToString()) for message in messages)


@pytest.mark.parametrize("name", RESPONSES)
@given(cuts=st.lists(st.integers(0, 120), max_size=12))
def test_any_cut_of_a_response_gives_the_same_usage(name: str, cuts: list[int]) -> None:
    messages, meant = RESPONSES[name]
    assert fed(framed(messages), cuts).usage == meant


def test_an_embedding_s_numbers_are_never_taken_for_a_chunk_s() -> None:
    vector = GenerateResponse(chunk=GenerateStreamChunk(prompt_tokens=1_000_000)).SerializeToString()
    assert fed(frame(vector + EmbedResponse(prompt_tokens=9).SerializeToString())).usage == Usage(9, 0, None)


def test_compressed_oversized_and_foreign_messages_are_skipped_and_the_next_is_read() -> None:
    good = framed([complete(5)])
    compressed = b"\x01" + frame(b"abc")[1:]
    oversized = frame(bytes(MESSAGE_BYTES + 1))
    for other in (compressed, oversized, frame(b"\xff\xff\xff"), frame(b"")):
        assert fed(other + good, range(0, len(other), 1 << 16)).usage == Usage(11, 5, 8)


def test_a_message_that_is_never_ended_is_not_kept() -> None:
    reader = fed(framed([complete(5)])[:-1])
    assert reader.usage is None
    assert fed(b"").usage is None


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_any_bytes_are_read_without_an_error(body: bytes, cuts: list[int]) -> None:
    fed(body, cuts)
