"""Log entries close picks, once each; all other entries are only counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Cause, Outcome
from epp.extproc.access_log import GONE, PATH, SAMPLE, AccessLog, outcome
from epp.pb.accesslog_entry_pb2 import HTTPAccessLogEntry, ResponseFlags
from epp.pb.accesslog_service_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse
from epp.wire.service import Status


class Picks:
    """Stands for the picks, of which 1 to 3 are open."""

    def __init__(self) -> None:
        self.open = {1, 2, 3}
        self.outcomes: list[Outcome] = []

    def ended(self, pick_id: int, outcome: Outcome) -> bool:
        if pick_id not in self.open:
            return False
        self.open.remove(pick_id)
        self.outcomes.append(outcome)
        return True


def entry(pick: Any = "1", **flags: bool) -> HTTPAccessLogEntry:
    made = HTTPAccessLogEntry()
    common = made.common_properties
    common.time_to_last_downstream_tx_byte.FromNanoseconds(1_500_000_000)
    common.duration.FromNanoseconds(9)
    common.upstream_remote_address.socket_address.address = "10.0.0.7"
    common.upstream_remote_address.socket_address.port_value = 8000
    common.response_flags.CopyFrom(ResponseFlags(**flags))
    if pick is not None:
        common.metadata.filter_metadata["tierwise"].update({"pick": pick})
    made.response.response_code.value = 200
    made.response.response_body_bytes = 42
    made.response.response_headers["content-type"] = "text/event-stream; charset=utf-8"
    return made


def message(*entries: HTTPAccessLogEntry) -> bytes:
    made = StreamAccessLogsMessage()
    made.http_logs.log_entry.extend(entries)
    return made.SerializeToString()


def test_a_client_that_left_before_the_first_byte_of_a_stream_has_no_answer() -> None:
    left = entry(downstream_connection_termination=True)
    assert not outcome(left).unanswered
    left.response.response_body_bytes = 0
    assert outcome(left).unanswered
    left.response.response_headers["content-type"] = "application/json"
    assert not outcome(left).unanswered, "nobody knows how far the endpoint was"
    assert not outcome(entry()).failed


def test_an_entry_says_all_it_knows() -> None:
    assert outcome(entry()) == Outcome(
        Cause.COMPLETED, status=200, duration_s=1.5, response_bytes=42, streaming=True, served_by="10.0.0.7:8000"
    )


def test_an_answer_that_never_began_has_neither_status_nor_endpoint() -> None:
    bare = HTTPAccessLogEntry()
    bare.common_properties.duration.FromNanoseconds(2_000_000_000)
    seen = outcome(bare)
    assert (seen.status, seen.served_by, seen.duration_s) == (None, None, 2.0)


def test_an_ipv6_endpoint_is_written_with_brackets() -> None:
    made = entry()
    made.common_properties.upstream_remote_address.socket_address.address = "fd00::1"
    assert outcome(made).served_by == "[fd00::1]:8000"


@pytest.mark.parametrize("flag", sorted(GONE))
def test_a_client_that_left_is_a_disconnect(flag: str) -> None:
    seen = outcome(entry(**{flag: True}))
    assert (seen.cause, seen.errors) == (Cause.DISCONNECTED, [])


def test_an_engine_that_failed_is_named_among_the_errors() -> None:
    seen = outcome(entry(upstream_remote_reset=True, upstream_retry_limit_exceeded=True))
    assert seen.cause is Cause.COMPLETED
    assert seen.errors == ["upstream_remote_reset", "upstream_retry_limit_exceeded"]


def test_the_flags_that_say_that_a_client_left_exist() -> None:
    assert set(ResponseFlags.DESCRIPTOR.fields_by_name) >= GONE


def test_every_entry_of_a_message_ends_its_pick() -> None:
    picks = Picks()
    log = AccessLog(picks)
    log.received(message(entry("1"), entry("2")))
    assert picks.open == {3}
    assert log.statistics().ended == 2


def test_a_duplicate_and_an_unknown_pick_are_counted_and_change_nothing() -> None:
    picks = Picks()
    log = AccessLog(picks)
    log.received(message(entry("1"), entry("1"), entry("77")))
    assert len(picks.outcomes) == 1
    assert (log.statistics().ended, log.statistics().unmatched) == (1, 2)


def test_the_end_of_a_sampled_pick_is_no_surprise() -> None:
    log = AccessLog(Picks())
    seen_whole = entry("77")
    seen_whole.common_properties.route_name = SAMPLE
    log.received(message(seen_whole))
    assert (log.statistics().sampled, log.statistics().unmatched) == (1, 0)


def test_an_entry_before_the_end_is_not_an_end() -> None:
    picks = Picks()
    early = entry("1")
    early.common_properties.intermediate_log_entry = True
    AccessLog(picks).received(message(early))
    assert not picks.outcomes


def test_a_request_that_nobody_placed_is_counted() -> None:
    log = AccessLog(Picks())
    log.received(message(entry(None)))
    assert log.statistics().without_pick == 1


@pytest.mark.parametrize("pick", ["", "x", "-1", "１", "1 ", "9" * 5000, 1.0, None, ["1"], {"a": 1}])
def test_a_pick_id_that_is_none_is_garbage(pick: Any) -> None:
    picks = Picks()
    log = AccessLog(picks)
    made = entry("1")
    made.common_properties.metadata.filter_metadata["tierwise"].update({"pick": pick})
    log.received(message(made))
    assert not picks.outcomes
    assert log.statistics().garbage == 1


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    AccessLog(Picks()).received(data)


@given(st.integers(0, 400), st.binary(max_size=4))
def test_a_damaged_message_is_taken(at: int, damage: bytes) -> None:
    whole = message(entry("1"), entry("2"))
    AccessLog(Picks()).received(whole[:at] + damage + whole[at + len(damage) :])


def test_a_stream_that_the_proxy_ends_is_answered() -> None:
    class Recorded:
        metadata: tuple[tuple[str, str], ...] = ()
        peer = "127.0.0.1:1"

        def __init__(self) -> None:
            self.sent: list[bytes] = []
            self.status: Status | None = None

        def send(self, message: bytes) -> None:
            self.sent.append(message)

        def finish(self, status: Status = Status.OK, message: str = "") -> None:
            self.status = status

    picks, call = Picks(), Recorded()
    stream = AccessLog(picks).methods()[PATH](call)
    stream.received(message(entry("1")))
    stream.half_closed()
    assert picks.open == {2, 3}
    assert (call.sent, call.status) == ([StreamAccessLogsResponse().SerializeToString()], Status.OK)
