"""The server keeps RFC 9113 and RFC 7541, whatever the client does."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case
from tests.conformance.client import Address
from tests.conformance.compression import COMPRESSION
from tests.conformance.connection_frames import CONNECTION_FRAMES
from tests.conformance.fields import call
from tests.conformance.flow_control import FLOW_CONTROL
from tests.conformance.frames import Field
from tests.conformance.requests import (
    CONNECTION_SPECIFIC_FIELDS,
    MALFORMED_REQUESTS,
    PROHIBITED_FIELDS,
    REQUESTS,
    malformed_request,
)
from tests.conformance.starting import STARTING
from tests.conformance.stream_frames import STREAM_FRAMES
from tests.conformance.streams import STREAMS

SUITES = (STARTING, STREAMS, STREAM_FRAMES, CONNECTION_FRAMES, FLOW_CONTROL, REQUESTS, COMPRESSION)
EVERY_CASE = [case for suite in SUITES for case in suite.parameters()]
FORBIDDEN_FIELDS = PROHIBITED_FIELDS | CONNECTION_SPECIFIC_FIELDS


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_server_does_what_the_rule_allows(case: Case, address: Address) -> None:
    assert case.run(address), "5.4.1 SHOULD: a connection error begins with GOAWAY"


@pytest.mark.parametrize("case", EVERY_CASE)
def test_it_makes_no_difference_where_tcp_cuts(case: Case, address: Address) -> None:
    case.run(address, pieces_bytes=7)


@pytest.mark.parametrize("field", FORBIDDEN_FIELDS.values(), ids=FORBIDDEN_FIELDS)
def test_a_request_with_a_forbidden_field_is_malformed(field: Field, address: Address) -> None:
    for case in malformed_request(call(field, without=[field[0]])):
        case.run(address)


@pytest.mark.parametrize("fields", MALFORMED_REQUESTS.values(), ids=MALFORMED_REQUESTS)
def test_a_request_that_breaks_the_rules_of_control_data_is_malformed(fields: list[Field], address: Address) -> None:
    for case in malformed_request(fields):
        case.run(address)
