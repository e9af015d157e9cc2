"""Length-prefixed messages arrive whole and in order however they are framed. Source: gRPC over HTTP/2, Requests."""

from __future__ import annotations

import pytest

from epp.wire.http2.limits import Limits
from tests.conformance.client import Client
from tests.conformance.echo import Endings
from tests.conformance.fields import STREAM, UNARY, block, call, message
from tests.conformance.frames import DEFAULT_MAX_FRAME_BYTES, MAX_WINDOW_BYTES, Field, Kind, Setting, data, headers
from tests.conformance.grpc_calls import Answer, answer, messages_in
from tests.conformance.running import serving

INTERNAL, UNIMPLEMENTED, RESOURCE_EXHAUSTED = 13, 12, 8
CONTENT = b"0123456789"
MESSAGE = message(CONTENT)


def send(client: Client, *chunks: bytes, path: bytes = UNARY, stream: int = 1, more: tuple[Field, ...] = ()) -> None:
    """A call whose content comes in these DATA frames."""
    client.send(headers(stream, block(call(*more, path=path))))
    for chunk in chunks[:-1]:
        client.send(data(stream, chunk))
    client.send(data(stream, chunks[-1], end=True))


def failed(got: Answer) -> bool:
    """Whether the call failed by a status or a reset."""
    return (got.status or 0) > 0 or got.reset is not None


@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_a_message_may_be_cut_at_every_byte(client: Client, path: bytes) -> None:
    for cut in range(len(MESSAGE) + 1):
        stream = 2 * cut + 1
        send(client, MESSAGE[:cut], MESSAGE[cut:], path=path, stream=stream)
        assert answer(client, stream).messages == (CONTENT,)


def test_a_message_may_come_byte_by_byte(client: Client) -> None:
    send(client, *(MESSAGE[i : i + 1] for i in range(len(MESSAGE))))
    assert answer(client).messages == (CONTENT,)


def test_empty_frames_between_the_parts_of_a_message_mean_nothing(client: Client) -> None:
    send(client, b"", MESSAGE[:3], b"", b"", MESSAGE[3:], b"")
    assert answer(client).messages == (CONTENT,)


def test_several_messages_may_share_a_frame(client: Client) -> None:
    send(client, message(b"a") + message(b"") + message(b"bc"), path=STREAM)
    assert answer(client).messages == (b"a", b"", b"bc")


def test_messages_and_frames_may_be_cut_in_any_rhythm(client: Client) -> None:
    contents = tuple(b"%d" % n * (n % 11) for n in range(60))
    whole = b"".join(message(content) for content in contents)
    for stream, step in ((1, 1), (3, 4), (5, 5), (7, 6), (9, 13), (11, 100)):
        send(client, *(whole[at : at + step] for at in range(0, len(whole), step)), path=STREAM, stream=stream)
        assert answer(client, stream).messages == contents


def test_a_streamed_message_is_answered_before_the_client_has_finished(client: Client) -> None:
    client.send(headers(1, block(call(path=STREAM))), data(1, MESSAGE))
    while not (got := client.received.reply(1).content) or len(got) < len(MESSAGE):
        assert client.receive()
    assert messages_in(bytes(got)) == (CONTENT,)
    client.send(data(1, b"", end=True))
    assert answer(client).status == 0


def test_a_call_without_messages_is_ended_by_headers_or_an_empty_frame(client: Client) -> None:
    client.send(headers(1, block(call(path=STREAM)), end=True))
    send(client, b"", path=STREAM, stream=3)
    assert [answer(client, stream).status for stream in (1, 3)] == [0, 0]


def test_trailers_end_a_call_as_well(client: Client) -> None:
    client.send(headers(1, block(call())), data(1, MESSAGE), headers(1, block([(b"checksum", b"0")]), end=True))
    assert answer(client).messages == (CONTENT,)


@pytest.mark.parametrize("length", [1, 4, 5, len(MESSAGE) - 1])
def test_half_a_message_at_the_end_fails_the_call(client: Client, length: int) -> None:
    """The message stream is corrupt: a status of the runtime, or "an RST_STREAM frame to indicate this state"."""
    send(client, MESSAGE[:length])
    assert failed(answer(client))


def test_a_whole_message_before_half_a_message_does_not_make_the_call_succeed(client: Client) -> None:
    send(client, MESSAGE + MESSAGE[:7], path=STREAM)
    got = client.reply(1)
    assert got.reset is not None or (got.grpc_status or 0) > 0


def test_the_compressed_flag_without_an_encoding_fails_the_call(client: Client) -> None:
    """ "If the Message-Encoding header is omitted then the Compressed-Flag must be 0"; compression.md: INTERNAL."""
    send(client, message(CONTENT, flag=1))
    got = answer(client)
    assert got.status in (INTERNAL, UNIMPLEMENTED) or got.reset is not None


def test_the_compressed_flag_with_identity_fails_the_call(client: Client) -> None:
    send(client, message(CONTENT, flag=1), more=((b"grpc-encoding", b"identity"),))
    assert failed(answer(client))


def test_identity_is_an_encoding_that_every_server_knows(client: Client) -> None:
    send(client, MESSAGE, more=((b"grpc-encoding", b"identity"), (b"grpc-accept-encoding", b"identity,gzip")))
    assert answer(client).messages == (CONTENT,)


def test_an_unknown_encoding_is_unimplemented_and_the_known_ones_are_named(client: Client) -> None:
    """compression.md: "the server will fail the RPC with UNIMPLEMENTED ... indicating the supported algorithms"."""
    send(client, message(CONTENT, flag=1), more=((b"grpc-encoding", b"snappier"),))
    assert answer(client).status == UNIMPLEMENTED
    assert client.reply(1).first(b"grpc-accept-encoding")


@pytest.mark.parametrize("flag", [2, 128, 255])
def test_a_compressed_flag_other_than_0_and_1_fails_the_call(client: Client, flag: int) -> None:
    """ "Compressed-Flag -> 0 / 1"."""
    send(client, message(CONTENT, flag=flag))
    assert failed(answer(client))


def test_a_message_announced_larger_than_the_limit_exhausts_resources_at_once(client: Client) -> None:
    client.send(headers(1, block(call())), data(1, b"\x00\xff\xff\xff\xff" + CONTENT))
    assert answer(client).status == RESOURCE_EXHAUSTED


def test_the_limit_of_a_message_is_exact(endings: Endings) -> None:
    with serving(endings, Limits(max_receive_message_bytes=100)) as running, Client(running.address) as client:
        client.handshake()
        send(client, message(bytes(100)))
        send(client, message(bytes(101)), stream=3)
        assert (answer(client).messages, answer(client, 3).status) == ((bytes(100),), RESOURCE_EXHAUSTED)


def test_a_refused_message_leaves_the_connection_to_other_calls(client: Client) -> None:
    client.send(headers(1, block(call())), data(1, b"\x00\xff\xff\xff\xff" + CONTENT), data(1, CONTENT, end=True))
    send(client, MESSAGE, stream=3)
    assert (answer(client).status, answer(client, 3).messages) == (RESOURCE_EXHAUSTED, (CONTENT,))


@pytest.mark.parametrize("path", [UNARY, STREAM])
@pytest.mark.parametrize("size_bytes", [16_379, 16_384, 65_530, 65_531, 1_000_000])
def test_a_large_message_crosses_flow_control_both_ways(client: Client, path: bytes, size_bytes: int) -> None:
    content = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)
    client.generous = True
    client.send(headers(1, block(call(path=path))))
    client.upload(1, message(content))
    assert answer(client).messages == (content,)
    assert all(len(f.payload) <= DEFAULT_MAX_FRAME_BYTES for f in client.received.frames if f.kind == Kind.DATA)


def test_a_response_starved_of_the_connection_window_waits_and_the_next_one_too(client: Client) -> None:
    client.configure((Setting.INITIAL_WINDOW_SIZE, MAX_WINDOW_BYTES))
    content = bytes(60_000)
    for stream in (1, 3):
        client.send(headers(stream, block(call())))
        client.upload(stream, message(content))
    client.settle()
    assert sum(len(reply.content) for reply in client.received.replies.values()) == 65_535
    client.grant_everything()
    assert [answer(client, stream).messages for stream in (1, 3)] == [(content,), (content,)]
