"""Methods, content types, deadlines, metadata, statuses. Source: gRPC over HTTP/2, Requests, Responses, Errors."""

from __future__ import annotations

import base64
import json

import pytest

from tests.conformance.client import Address, Client
from tests.conformance.echo import Endings
from tests.conformance.fields import STREAM, block, call, message, replaced
from tests.conformance.frames import Code, Field, Kind, continuation, data, headers, reset
from tests.conformance.grpc_calls import Answer, answer, ask

INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNIMPLEMENTED = 3, 4, 12
SILENCE = (b"want", b"silence")
UNKNOWN_PATHS = (b"/test.Echo/Missing", b"/test.Missing/Unary", b"/", b"/test.Echo", b"/test.Echo/", b"*",
                 b"test.Echo/Unary", b"/test.Echo/Unary/", b"/test.Echo/Unary?x=1", b"/Test.Echo/unary")  # fmt: skip
TEXTS = ("", "plain", "50 % of it", "%41", "größer", "line\nbreak\ttab\r", "🙂", "a" * 1000, "\x00\x7f")
VALID_TIMEOUTS = (b"1H", b"1M", b"1S", b"1000m", b"9000000u", b"99999999n", b"99999999H", b"00000010S")
INVALID_TIMEOUTS = (b"", b"S", b"1", b"1s", b"1h", b"-1S", b"+1S", b"1.5S", b"1 S", b"123456789S", b"0x10S", b"1SS",
                    b"9" * 5000 + b"S", b"\xb2S", b"1_0S")  # fmt: skip


def deadline_passed(got: Answer) -> bool:
    """Whether the call ended as a deadline may: "send RST_STREAM with CANCEL error code", or the status."""
    return got.status == DEADLINE_EXCEEDED or got.reset == Code.CANCEL


def metadata_of(client: Client, *fields: Field) -> list[tuple[str, str]]:
    """What the server hands to the handler for a call with these custom ``fields``."""
    got = ask(client, (b"want", b"metadata"), *fields)
    assert got.status == 0
    return [(name, value) for name, value in json.loads(got.messages[0])]


def test_a_call_is_answered(client: Client) -> None:
    got = ask(client)
    assert (got.status, got.messages, got.sections) == (0, (b"ping",), 2)


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
def test_an_unknown_method_is_unimplemented(client: Client, path: bytes) -> None:
    """ "Path is case-sensitive". A path of no gRPC form may be refused as HTTP."""
    got = ask(client, path=path)
    assert got.status == UNIMPLEMENTED or (
        not path.startswith(b"/test") and (got.reset or (got.http_status or 0) > 399)
    )


def test_an_unknown_method_is_answered_with_trailers_only(client: Client) -> None:
    """ "Trailers-Only is permitted for calls that produce an immediate error": one HEADERS frame, no DATA."""
    assert ask(client, path=b"/test.Echo/Missing").sections == 1
    assert all(frame.kind != Kind.DATA for frame in client.received.frames)


def test_a_call_answered_early_is_reset_without_error(client: Client) -> None:
    """Early Server Closure: "the server should send RST_STREAM with NO_ERROR error code immediately following"."""
    client.send(headers(1, block(call(path=b"/test.Echo/Missing"))))
    client.settle()
    reply = client.received.reply(1)
    assert (reply.grpc_status, reply.reset) == (UNIMPLEMENTED, Code.NO_ERROR)


@pytest.mark.parametrize("value", [b"application/grpc+proto", b"application/grpc;charset=utf-8", b"application/grpc"])
def test_the_content_types_of_grpc_are_accepted(client: Client, value: bytes) -> None:
    client.send(headers(1, block(replaced(b"content-type", value))), data(1, message(b"ping"), end=True))
    assert answer(client).status == 0


@pytest.mark.parametrize("value", [b"application/json", b"text/html", b"", b"application/gr", b"x application/grpc"])
def test_another_content_type_is_unsupported(client: Client, value: bytes) -> None:
    """ "gRPC servers SHOULD respond with HTTP status of 415 (Unsupported Media Type)"."""
    client.send(headers(1, block(replaced(b"content-type", value))), data(1, message(b"ping"), end=True))
    assert answer(client).http_status == 415


def test_no_content_type_is_unsupported(client: Client) -> None:
    client.send(headers(1, block(call(without=[b"content-type"])), end=True))
    assert answer(client).http_status == 415


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"HEAD", b"OPTIONS"])
def test_only_post_makes_a_call(client: Client, method: bytes) -> None:
    """ "Method -> :method POST"."""
    client.send(headers(1, block(replaced(b":method", method)), end=True))
    got = answer(client)
    assert got.status != 0
    assert got.reset is not None or (got.http_status or 0) >= 400 or got.status


def test_a_head_response_has_no_content(client: Client) -> None:
    """RFC 9110, 9.3.2: "the server MUST NOT send content in the response" to HEAD."""
    client.send(headers(1, block(replaced(b":method", b"HEAD")), end=True))
    assert not client.reply(1).content


def test_the_authority_is_optional(client: Client) -> None:
    """ "Call-Definition -> Method Scheme Path TE [Authority] ..."."""
    client.send(headers(1, block(call(without=[b":authority"]))), data(1, message(b"ping"), end=True))
    assert answer(client).status == 0


def test_te_is_not_required(client: Client) -> None:
    """TE serves "to detect incompatible proxies"; Envoy and others may drop it."""
    client.send(headers(1, block(call(without=[b"te"]))), data(1, message(b"ping"), end=True))
    assert answer(client).status == 0


@pytest.mark.parametrize("timeout", VALID_TIMEOUTS)
def test_a_call_with_time_left_is_answered(client: Client, timeout: bytes) -> None:
    """TimeoutValue is a "positive integer as ASCII string of at most 8 digits"."""
    assert ask(client, (b"grpc-timeout", timeout)).status == 0


@pytest.mark.parametrize("timeout", INVALID_TIMEOUTS)
def test_a_timeout_of_no_valid_form_is_refused_and_never_reaches_the_handler(
    client: Client, endings: Endings, timeout: bytes
) -> None:
    """The protocol leaves it open; a deadline that is not understood must not become "no deadline"."""
    name = b"invalid-timeout-" + timeout.hex().encode()
    got = ask(client, (b"grpc-timeout", timeout), (b"name", name))
    assert (got.status or 0) > 0 or got.reset or (got.http_status or 0) >= 400
    assert endings.wait(name.decode(), "half-closed", limit_s=0) == 0


@pytest.mark.parametrize("timeout", [b"1m", b"100u", b"1n", b"20m", b"0S"])
def test_a_call_past_its_deadline_ends(client: Client, endings: Endings, address: Address, timeout: bytes) -> None:
    """ "When the server detects the client's deadline has expired ... the server should locally cancel the RPC"."""
    name = f"deadline-{timeout.decode()}-{address[1]}"
    got = ask(client, (b"grpc-timeout", timeout), SILENCE, (b"name", name.encode()))
    assert deadline_passed(got) or (timeout == b"0S" and got.status)
    assert endings.wait(name, "cancelled") == 1 or endings.wait(name, "half-closed", limit_s=0) == 0


def test_a_deadline_ends_a_call_whose_client_still_sends(client: Client) -> None:
    client.send(headers(1, block(call((b"grpc-timeout", b"10m"), path=STREAM))), data(1, message(b"ping")))
    assert deadline_passed(answer(client))


def test_a_deadline_of_one_call_leaves_the_others(client: Client) -> None:
    client.send(headers(1, block(call((b"grpc-timeout", b"5m"), SILENCE))), headers(3, block(call())))
    assert deadline_passed(answer(client))
    client.send(data(3, message(b"ping"), end=True))
    assert answer(client, 3).status == 0


def test_a_cancelled_call_is_told_to_its_handler_once_and_nothing_more_is_sent(
    client: Client, endings: Endings, address: Address
) -> None:
    """ "Client cancellation is performed by the client sending RST_STREAM with CANCEL error code"."""
    name = f"cancel-{address[1]}"
    client.send(headers(1, block(call(SILENCE, (b"name", name.encode())))), data(1, message(b"ping"), end=True))
    client.send(reset(1))
    client.settle()
    assert endings.wait(name, "cancelled", limit_s=0) == 1
    assert 1 not in client.received.replies


def test_a_lost_connection_cancels_its_calls(endings: Endings, address: Address) -> None:
    with Client(address) as client:
        client.handshake()
        client.send(headers(1, block(call(SILENCE, (b"name", b"lost-%d" % address[1])))))
        client.settle()
    assert endings.wait(f"lost-{address[1]}", "cancelled") == 1


def test_custom_metadata_reaches_the_handler_in_order_with_repeated_names(client: Client) -> None:
    sent: list[Field] = [(b"tag", b"a"), (b"other.name_1-x", b"b, c"), (b"tag", b"d")]
    got = [(name, value) for name, value in metadata_of(client, *sent) if name in ("tag", "other.name_1-x")]
    assert got == [("tag", "a"), ("other.name_1-x", "b, c"), ("tag", "d")]


def test_pseudo_header_fields_are_no_metadata(client: Client) -> None:
    assert not [name for name, _ in metadata_of(client) if name.startswith(":")]


@pytest.mark.parametrize("encoded", [b"AAEC/w==", b"AAEC/w"])
def test_binary_metadata_may_be_padded_or_not(client: Client, encoded: bytes) -> None:
    """ "Implementations MUST accept padded and un-padded values"."""
    value = dict(metadata_of(client, (b"blob-bin", encoded)))["blob-bin"]
    assert base64.b64decode(value + "=" * (-len(value) % 4)) == b"\x00\x01\x02\xff"


def test_unknown_reserved_metadata_does_not_fail_a_call(client: Client) -> None:
    """Names "starting with "grpc-" but not listed here are reserved for future GRPC use"."""
    assert ask(client, (b"grpc-future", b"1"), (b"grpc-message-type", b"x")).status == 0


def test_metadata_above_ascii_does_not_fail_a_call(client: Client) -> None:
    """ "Implementations must not error due to receiving an invalid ASCII-Value that's a valid field-value in HTTP"."""
    assert ask(client, (b"title", b"\xc3\xa9\xff"), (b"tabs", b"a\tb"), (b"nothing", b"")).status == 0


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_status_survives_percent_encoding(client: Client, text: str) -> None:
    """ "Status-Message is conceptually a Unicode string ... encoded as UTF-8 followed by percent-encoding"."""
    got = ask(client, (b"want", b"status"), (b"status", b"3"), content=text.encode())
    assert (got.status, got.text, got.messages) == (INVALID_ARGUMENT, text, ())


def test_a_long_text_is_kept_or_cut_between_characters(client: Client) -> None:
    got = ask(client, (b"want", b"status"), (b"status", b"3"), content="ß".encode() * 4000)
    assert got.status == INVALID_ARGUMENT
    assert set(got.text) <= set("ß.… ")


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 8, 12, 13, 14])
def test_every_status_comes_back_as_a_decimal_number(client: Client, status: int) -> None:
    assert ask(client, (b"want", b"status"), (b"status", b"%d" % status)).status == status


def test_large_metadata_is_refused_for_its_call_alone(client: Client) -> None:
    """ "Servers may limit the size of Request-Headers"; the connection is not to be lost for 40 KB."""
    client.send(headers(1, block(call()), complete=False))
    filler = block([(b"filler", b"x" * 10_000)])
    client.send(*(continuation(1, filler, complete=last) for last in (False, False, False, True)))
    client.send(data(1, message(b"ping"), end=True))
    got = answer(client)
    assert got.http_status == 431 or (got.status or 0) > 0 or got.reset is not None or got.status == 0
    assert ask(client, stream=3).status == 0
