"""Sessions that clients carry, and sessions that are remembered here: for how long, and how many."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.affinity.session import MAX_SESSIONS, RememberedHere, SessionTable
from scorers.affinity.session_affinity import (
    EncodedHeader,
    SessionAffinityFilter,
    SessionAffinityParameters,
    SessionAffinityScorer,
    SessionIds,
    SessionSource,
    Strategy,
)
from scorers.base import Candidate, Request, Slot

NAMED = Candidate(slot=Slot(0), address="10.0.0.1:8000", name="ns/vllm-0")
OTHER = Candidate(slot=Slot(1), address="10.0.0.2:8000", name="ns/vllm-1")
NAMELESS = Candidate(slot=Slot(2), address="10.0.0.3:8000")
POOL = [NAMED, OTHER, NAMELESS]


def request(now: float = 0.0, **headers: str) -> Request:
    return Request(
        id="r",
        model="m",
        target_model="m",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        received_s=now,
    )


def token(text: str) -> str:
    return b64encode(text.encode()).decode()


def remembering(ttl_s: float = 300.0, *sources: str) -> SessionAffinityParameters:
    ids = SessionIds(tuple(SessionSource(header) for header in sources or ("x-session-id",)), ttl_s)
    return SessionAffinityParameters(Strategy.SESSION_ID, session_id_config=ids)


# encoded_endpoint_header


@pytest.mark.parametrize("endpoint", POOL)
def test_a_client_that_sends_its_token_back_stays_at_its_endpoint(endpoint: Candidate) -> None:
    scorer = SessionAffinityScorer()
    headers = scorer.response_headers(request(), endpoint)
    assert headers == {"x-session-token": token(endpoint.name or endpoint.address)}
    again = Request(id="r", model="m", target_model="m", headers=headers)
    assert scorer.score(again, POOL) == [float(c is endpoint) for c in POOL]
    assert SessionAffinityFilter().keep(again, POOL) == [endpoint]


def test_the_header_may_have_another_name() -> None:
    for written in (
        SessionAffinityParameters(encoded_endpoint_header_config=EncodedHeader("X-Mine")),
        SessionAffinityParameters(header_name="X-Mine"),
    ):
        scorer = SessionAffinityScorer(written)
        assert scorer.response_headers(request(), NAMED) == {"x-mine": token("ns/vllm-0")}
        assert scorer.score(request(x_mine=token("ns/vllm-1")), POOL) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "value", ["", "???", "=", token("ns/gone"), token("x" * 2000), b64encode(b"\xff\xfe").decode(), "ünïcode"]
)
def test_an_invalid_token_is_no_session(value: str) -> None:
    lost = request(x_session_token=value)
    assert SessionAffinityScorer().score(lost, POOL) == [0.0, 0.0, 0.0]
    assert SessionAffinityFilter().keep(lost, POOL) is POOL


# session_id


def test_a_session_that_was_picked_somewhere_belongs_there() -> None:
    scorer, narrower = SessionAffinityScorer(remembering()), SessionAffinityFilter(remembering())
    first = request(x_session_id="s")
    assert scorer.score(first, POOL) == [0.0, 0.0, 0.0]
    assert narrower.keep(first, POOL) is POOL
    scorer.picked(first, OTHER)
    narrower.picked(first, OTHER)
    assert scorer.score(request(x_session_id="s"), POOL) == [0.0, 1.0, 0.0]
    assert scorer.score(request(x_session_id="t"), POOL) == [0.0, 0.0, 0.0]
    assert narrower.keep(request(x_session_id="s"), POOL) == [OTHER]
    assert not scorer.sets_response_headers
    assert scorer.response_headers(first, OTHER) == {}


def test_a_session_is_remembered_as_long_as_it_is_used() -> None:
    scorer = SessionAffinityScorer(remembering(10.0))
    scorer.picked(request(0, x_session_id="s"), NAMED)
    for now in (9, 18, 28):
        again = request(now, x_session_id="s")
        assert scorer.score(again, POOL)[0] == 1.0
        scorer.picked(again, NAMED)
    assert scorer.score(request(38.1, x_session_id="s"), POOL) == [0.0, 0.0, 0.0]


def test_a_session_moves_only_when_its_endpoint_is_gone() -> None:
    scorer = SessionAffinityScorer(remembering())
    scorer.picked(request(x_session_id="s"), NAMED)
    outweighed = request(x_session_id="s")
    scorer.score(outweighed, POOL)
    scorer.picked(outweighed, OTHER)
    assert scorer.score(request(x_session_id="s"), POOL) == [1.0, 0.0, 0.0]
    gone = request(x_session_id="s")
    assert scorer.score(gone, POOL[1:]) == [0.0, 0.0]
    scorer.picked(gone, OTHER)
    assert scorer.score(request(x_session_id="s"), POOL) == [0.0, 1.0, 0.0]


def test_the_first_source_that_is_not_empty_counts() -> None:
    scorer = SessionAffinityScorer(remembering(300.0, "X-A", "x-b"))
    scorer.picked(request(x_a="", x_b="s"), NAMED)
    assert scorer.score(request(x_b="s"), POOL)[0] == 1.0
    assert scorer.score(request(x_a="s"), POOL)[0] == 1.0
    assert scorer.score(request(x_a="other", x_b="s"), POOL)[0] == 0.0


def test_requests_without_an_id_leave_nothing() -> None:
    scorer = SessionAffinityScorer(remembering())
    scorer.picked(request(), NAMED)
    assert isinstance(scorer.affinity, RememberedHere)
    assert len(scorer.affinity.table) == 0


# The table


def test_of_too_many_sessions_the_least_recently_used_is_forgotten() -> None:
    table = SessionTable(300.0, 10.0, limit=2)
    for session, now in (("a", 0), ("b", 1), ("a", 2), ("c", 3)):
        table.bind(session, "e", now)
    assert [table.endpoint(session, 3) for session in "abc"] == ["e", None, "e"]


def test_long_ids_take_no_more_room_and_stay_apart() -> None:
    table = SessionTable(300.0, 10.0)
    table.bind("s" * 10_000 + "1", "one", 0)
    table.bind("s" * 10_000 + "2", "two", 0)
    assert table.endpoint("s" * 10_000 + "1", 0) == "one"
    assert max(len(key) for key in table._sessions) <= 64
    assert MAX_SESSIONS == 65_536


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y"]), st.floats(0, 30), st.booleans()), max_size=40
    ),
    st.floats(0, 20),
    st.floats(0, 20),
    st.integers(1, 4),
)
@settings(max_examples=150, deadline=None)
def test_the_table_is_a_dictionary_with_times(
    steps: list[tuple[str, str, float, bool]], ttl_s: float, sweep_s: float, limit: int
) -> None:
    table = SessionTable(ttl_s, sweep_s, limit)
    naive: dict[str, tuple[str, float]] = {}
    latest = float("-inf")
    for session, endpoint, now, binds in steps:
        if binds:
            latest = max(latest, now)
            naive.pop(session, None)
            naive[session] = (endpoint, latest)
            while len(naive) > limit:
                del naive[next(iter(naive))]
            table.bind(session, endpoint, now)
        known = naive.get(session)
        expected = known[0] if known and known[1] + ttl_s >= max(now, latest) else None
        assert table.endpoint(session, now) == expected
        assert len(table) <= limit
