"""The endpoints whose outages are logged, and when."""

from __future__ import annotations

from epp.kvevents.outages import PATIENCE_S, PublisherOutages
from scorers.base import Slot
from scorers.precise.status import EndpointStatus


def told(why: str, source: int = 0) -> EndpointStatus:
    return EndpointStatus(source, Slot(source), f"127.0.0.1:{8000 + source}", why)


def test_an_endpoint_is_logged_once_when_it_is_disconnected_for_a_while() -> None:
    outages = PublisherOutages()
    named = [len(list(outages.look([told("not connected")], second))) for second in range(30)]
    assert named == [0] * int(PATIENCE_S) + [1] + [0] * (29 - int(PATIENCE_S))


def test_an_endpoint_that_was_connected_meanwhile_has_as_long_again_and_is_logged_again() -> None:
    outages, named = PublisherOutages(), []
    for second in range(60):
        why = "" if 20 <= second < 25 else "not connected"
        named += [second for _ in outages.look([told(why)], second)]
    assert named == [10, 35]


def test_an_endpoint_that_goes_is_forgotten_and_each_is_named_for_itself() -> None:
    outages = PublisherOutages()
    for second in range(12):
        last = [each.address for each in outages.look([told("not connected"), told("gap", 1)], second)]
        assert last == (["127.0.0.1:8000"] if second == 10 else [])
    assert list(outages.look([], 12.0)) == []
    assert list(outages.look([told("not connected")], 13.0)) == []
