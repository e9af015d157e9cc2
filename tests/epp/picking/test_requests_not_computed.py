"""A request that its endpoint did not compute leaves nothing in the prefix index, if that was observed."""

from __future__ import annotations

import pytest

from epp.config.defaults import default_config
from epp.config.wiring.build import build
from epp.decision import Cause, Outcome, RequestHead
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.pool.pool import Endpoint
from epp.server.core import Core
from epp.server.settings import Settings
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    completion,
    request_body,
    request_headers,
    response_body,
    response_headers,
)

HEAD = RequestHead({":path": "/v1/completions"})
PROMPT = "x" * 4096
ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000")


class Picker:
    def __init__(self) -> None:
        self.core = Core(build(default_config()), Settings())
        self.core.pool.replace([Endpoint(address) for address in ADDRESSES])

    def sent(self) -> tuple[int, str]:
        """Return a pick of PROMPT, and its address."""
        decision = self.core.director.decide(HEAD, completion(PROMPT))
        return decision.pick_id, decision.destination.partition(",")[0]

    def end(self, outcome: Outcome) -> None:
        self.core.director.picks.ended(self.sent()[0], outcome)


def held(picker: Picker) -> int:
    """Return the blocks of PROMPT that any endpoint holds, according to the index."""
    cache = picker.core.plan.prefix_cache
    assert cache is not None
    cache.index.check_integrity()
    return cache.statistics().blocks


BLOCKS = len(PROMPT) // 4 // 64


@pytest.mark.parametrize(
    ("outcome", "blocks"),
    [
        (Outcome(Cause.COMPLETED, status=200), BLOCKS),
        (Outcome(Cause.COMPLETED, status=400), 0),
        (Outcome(Cause.COMPLETED, status=503), 0),
        (Outcome(Cause.DISCONNECTED), BLOCKS),
        (Outcome(Cause.DISCONNECTED, streaming=True, unanswered=True), 0),
        (Outcome(Cause.DISCONNECTED, status=200, streaming=True, unanswered=True), 0),
        (Outcome(Cause.DISCONNECTED, status=200, streaming=True, ttft_s=1.0), BLOCKS),
        (Outcome(Cause.UNREPORTED), BLOCKS),
        (Outcome(Cause.COMPLETED, status=200, served_by="10.9.9.9:15008"), BLOCKS),
    ],
)
def test_what_an_endpoint_holds_after_a_request_that_ended_so(outcome: Outcome, blocks: int) -> None:
    picker = Picker()
    picker.end(outcome)
    assert held(picker) == blocks
    picker.end(Outcome(Cause.COMPLETED, status=200))
    picker.end(outcome)
    assert held(picker) == BLOCKS, "what was there before stays"


@pytest.mark.parametrize("early", [True, False])
def test_a_pick_that_another_endpoint_served_leaves_nothing_where_it_was_sent(early: bool) -> None:
    picker = Picker()
    pick_id, address = picker.sent()
    other = next(each for each in ADDRESSES if each != address)
    if early:
        picker.core.director.picks.served_by(pick_id, other, 1.0)
    picker.core.director.picks.ended(pick_id, Outcome(Cause.COMPLETED, status=200, served_by=other))
    assert held(picker) == 0


@pytest.mark.parametrize(
    ("mode", "answer", "blocks"),
    [(FULL_DUPLEX, "none", 0), (FULL_DUPLEX, "head", 0), (FULL_DUPLEX, "body", BLOCKS), (NONE, "none", BLOCKS)],
)
def test_a_stream_that_the_client_leaves_counts_from_its_first_byte(mode: int, answer: str, blocks: int) -> None:
    picker = Picker()
    exchange = Exchange(picker.core.director, ExchangeSettings())
    exchange.received(request_headers(modes=(BUFFERED, mode)), 0.0)
    exchange.received(request_body(completion(PROMPT, stream=True)), 0.0)
    if answer != "none":
        exchange.received(response_headers(), 1.0)
    if answer == "body":
        exchange.received(response_body(b"data: {}", end_of_stream=False), 2.0)
    exchange.closed(3.0)
    assert held(picker) == blocks
