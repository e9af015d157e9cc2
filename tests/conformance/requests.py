"""Cases: what makes a request malformed. Source: RFC 9113, section 8."""

from __future__ import annotations

from tests.conformance.cases import MALFORMED, Answered, Suite
from tests.conformance.client import Client
from tests.conformance.fields import block, call, indexed, message, remembered, replaced
from tests.conformance.frames import Field, data, headers

REQUESTS = Suite("RFC 9113")
MESSAGE = message(b"ping")

PROHIBITED_FIELDS: dict[str, Field] = {
    "an upper-case name": (b"X-Upper", b"1"),
    "a space in the name": (b"x y", b"1"),
    "a control byte in the name": (b"x\x00y", b"1"),
    "DEL in the name": (b"x\x7f", b"1"),
    "a byte above ASCII in the name": (b"x\xe9", b"1"),
    "a colon in the name": (b"x:y", b"1"),
    "an empty name": (b"", b"1"),
    "NUL in the value": (b"x", b"a\x00b"),
    "LF in the value": (b"x", b"a\nb"),
    "CR in the value": (b"x", b"a\rb"),
    "a space before the value": (b"x", b" a"),
    "a space after the value": (b"x", b"a "),
    "a tab before the value": (b"x", b"\ta"),
    "a tab after the value": (b"x", b"a\t"),
}
"""Section 8.2.1: "A request or response that contains a field that violates any of these conditions MUST be treated as
malformed"."""

CONNECTION_SPECIFIC_FIELDS: dict[str, Field] = {
    "connection": (b"connection", b"keep-alive"),
    "proxy-connection": (b"proxy-connection", b"keep-alive"),
    "keep-alive": (b"keep-alive", b"timeout=5"),
    "transfer-encoding": (b"transfer-encoding", b"chunked"),
    "upgrade": (b"upgrade", b"h2c"),
    "te other than trailers": (b"te", b"trailers, deflate;q=0.5"),
}
"""Section 8.2.2: "Any message containing connection-specific header fields MUST be treated as malformed"; of te: "it
MUST NOT contain any value other than "trailers"."""

MALFORMED_REQUESTS: dict[str, list[Field]] = {
    "an unknown pseudo-header field": [(b":test", b"1"), *call()],
    "a protocol without extended CONNECT": [(b":protocol", b"websocket"), *call()],
    "a pseudo-header field of responses": [(b":status", b"200"), *call()],
    "a pseudo-header field after a regular one": [*call()[1:], (b":method", b"POST")],
    "an empty path": replaced(b":path", b""),
    "no method": call(without=[b":method"]),
    "no scheme": call(without=[b":scheme"]),
    "no path": call(without=[b":path"]),
    "two methods": [(b":method", b"POST"), *call()],
    "two schemes": [(b":scheme", b"http"), *call()],
    "two paths": [(b":path", b"/test.Echo/Unary"), *call()],
    "two authorities": [(b":authority", b"conformance"), *call()],
    "CONNECT with a path and a scheme": replaced(b":method", b"CONNECT"),
    "no fields at all": [],
    "a content length that is not a number": call((b"content-length", b"nine")),
    "a negative content length": call((b"content-length", b"-9")),
    "a content length with a sign": call((b"content-length", b"+9")),
    "a content length with an underscore": call((b"content-length", b"0_9")),
    "a content length in other digits": call((b"content-length", b"\xb9")),
    "a content length of 5000 digits": call((b"content-length", b"9" * 5000)),
    "two content lengths that differ": call((b"content-length", b"9"), (b"content-length", b"8")),
}
"""Sections 8.3, 8.3.1, 8.5 and 8.1.1, each with "MUST be treated as malformed" or the like."""


@REQUESTS.case(*MALFORMED)
def a_second_headers_frame_without_end_stream_is_malformed(client: Client) -> None:
    """8.1 MUST: "An endpoint that receives a HEADERS frame without the END_STREAM flag set after receiving the HEADERS
    frame that opens a request ... MUST treat the corresponding request or response as malformed"."""
    client.send(headers(1, block(call())), data(1, MESSAGE), headers(1, block([(b"checksum", b"0")])))


@REQUESTS.case(Answered())
def trailers_end_a_request(client: Client) -> None:
    """8.1 MUST: "optionally, one HEADERS frame ... containing the trailer section"."""
    client.send(headers(1, block(call())), data(1, MESSAGE), headers(1, block([(b"checksum", b"0")]), end=True))


@REQUESTS.case(*MALFORMED)
def pseudo_header_fields_in_trailers_are_malformed(client: Client) -> None:
    """8.1 MUST: "An endpoint that receives pseudo-header fields in trailers MUST treat the request or response as
    malformed"."""
    client.send(headers(1, block(call())), data(1, MESSAGE), headers(1, block([(b":method", b"POST")]), end=True))


@REQUESTS.case(*MALFORMED)
def an_upper_case_name_in_trailers_is_malformed(client: Client) -> None:
    """8.2.1 MUST: "A field name MUST NOT contain characters in the ranges 0x00-0x20, 0x41-0x5a, or 0x7f-0xff"."""
    client.send(headers(1, block(call())), data(1, MESSAGE), headers(1, block([(b"Checksum", b"0")]), end=True))


@REQUESTS.case(*MALFORMED)
def less_content_than_announced_is_malformed(client: Client) -> None:
    """8.1.1 MUST: "A request or response is also malformed if the value of a content-length header field does not equal
    the sum of the DATA frame payload lengths that form the content"."""
    client.send(headers(1, block(call((b"content-length", b"10")))), data(1, MESSAGE, end=True))


@REQUESTS.case(*MALFORMED)
def more_content_than_announced_is_malformed(client: Client) -> None:
    """8.1.1 MUST: "malformed if the value of a content-length header field does not equal the sum"."""
    first, second = data(1, MESSAGE[:4]), data(1, MESSAGE[4:], end=True)
    client.send(headers(1, block(call((b"content-length", b"8")))), first, second)


@REQUESTS.case(*MALFORMED)
def no_content_where_some_was_announced_is_malformed(client: Client) -> None:
    """8.1.1 MUST: "malformed if the value of a content-length header field does not equal the sum"."""
    client.send(headers(1, block(call((b"content-length", b"9"))), end=True))


@REQUESTS.case(*MALFORMED)
def less_content_than_announced_before_trailers_is_malformed(client: Client) -> None:
    """8.1.1 MUST: "malformed if the value of a content-length header field does not equal the sum"."""
    client.send(headers(1, block(call((b"content-length", b"10")))), data(1, MESSAGE))
    client.send(headers(1, block([(b"checksum", b"0")]), end=True))


@REQUESTS.case(Answered((1, 3)))
def the_content_length_counts_content_without_padding(client: Client) -> None:
    """8.1.1 MUST: the sum is "of the DATA frame payload lengths that form the content"."""
    counted = block(call((b"content-length", b"9")))
    client.send(headers(1, counted), data(1, MESSAGE[:4], padding=20), data(1, MESSAGE[4:], end=True))
    client.send(headers(3, counted), data(3, MESSAGE), headers(3, block([(b"checksum", b"0")]), end=True))


@REQUESTS.case(*MALFORMED)
def a_host_that_differs_from_the_authority_is_malformed(client: Client) -> None:
    """8.3.1 SHOULD: "A server SHOULD treat a request as malformed if it contains a Host header field that identifies an
    entity that differs from the entity in the ":authority" pseudo-header field"."""
    client.send(headers(1, block(call((b"host", b"elsewhere"))), end=True))


@REQUESTS.case(Answered((1, 3)))
def a_host_like_the_authority_or_instead_of_it_is_accepted(client: Client) -> None:
    """8.3.1 MUST: a proxy may keep Host and "omit :authority"; a Host field that agrees is no error."""
    same, only = call((b"host", b"conformance")), call((b"host", b"conformance"), without=[b":authority"])
    for stream, fields in ((1, same), (3, only)):
        client.send(headers(stream, block(fields)), data(stream, MESSAGE, end=True))


@REQUESTS.case(Answered())
def cookies_and_odd_but_legal_fields_are_accepted(client: Client) -> None:
    """8.2.1 MUST: the rules leave these alone: every token character, inner spaces and tabs, bytes above ASCII, an
    empty value, a split cookie."""
    fields = [(b"!#$%&'*+-.^_`|~09az", b"1"), (b"x", b"a \t b"), (b"y", b"\xe9\xff"), (b"z", b"")]
    cookies = [(b"cookie", b"a=b"), (b"cookie", b"c=d")]
    client.send(headers(1, block(call(*fields, *cookies))), data(1, MESSAGE, end=True))


@REQUESTS.case(Answered((3,)))
def frames_in_flight_after_a_malformed_request_are_discarded_and_keep_the_tables_in_step(client: Client) -> None:
    """5.1 MUST: "An endpoint MUST minimally process and then discard any frames it receives in this state. This means
    updating header compression state for HEADERS"."""
    client.send(headers(1, block(call((b"connection", b"close"))) + remembered(b"first", b"1")))
    client.send(data(1, MESSAGE), headers(1, remembered(b"second", b"2"), end=True))
    client.send(headers(3, block(call()) + indexed(62) + indexed(63)), data(3, MESSAGE, end=True))


@REQUESTS.case(Answered((3,)))
def trailers_in_flight_after_an_early_answer_keep_the_tables_in_step(client: Client) -> None:
    """4.3 MUST: "A receiver MUST reassemble field blocks and perform decompression even if the frames are to be
    discarded"."""
    client.send(headers(1, block(call(path=b"/test.Missing/Method"))))
    client.settle()
    client.send(data(1, MESSAGE), headers(1, remembered(b"second", b"2"), end=True))
    client.send(headers(3, block(call()) + indexed(62)), data(3, MESSAGE, end=True))


def malformed_request(fields: list[Field]) -> Suite:
    """A suite of one case: a request of these ``fields`` with its message is malformed."""
    suite = Suite("RFC 9113")

    def stimulus(client: Client) -> None:
        """8.1.1 MUST: "Malformed requests or responses that are detected MUST be treated as a stream error of type
        PROTOCOL_ERROR"; a 4xx response may come first."""
        client.send(headers(1, block(fields)), data(1, MESSAGE, end=True))

    suite.case(*MALFORMED)(stimulus)
    return suite
