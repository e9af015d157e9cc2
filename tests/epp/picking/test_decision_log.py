"""The log lines of one request at ``--v=4``."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from epp.config.wiring.build import build
from epp.decision import Cause, Outcome, RequestHead, Usage
from epp.errors import EppError
from epp.parsers import OpenAIParser
from epp.picking.director import Director
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from tests.epp.doubles import Telemetry, World, completion

HEAD = RequestHead({":path": "/v1/completions", "x-request-id": "abc", "authorization": "Bearer canary"})


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.name == "epp.picking.decision_log"]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "epp.picking.decision_log")


def test_a_request_is_told_from_its_pick_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    pool, plan = Pool(), build()
    assert plan.prefix_cache is not None
    pool.listeners.append(plan.prefix_cache)
    pool.replace([Endpoint("10.0.0.1:8000")])
    director = Director(RequestSteps(OpenAIParser(), plan.profile), pool, Ledger(pool), Telemetry())
    body = completion("x" * 512)
    director.decide(HEAD, body)
    decision = director.decide(HEAD, body)
    outcome = Outcome(Cause.COMPLETED, 200, 1.25, 0.5, 90, usage=Usage(128, 9, 64), served_by="10.0.0.9:8000")
    director.picks.ended(decision.pick_id, outcome)
    _, picked, ended = fields(caplog)
    assert {k: picked[k] for k in ("request_id", "pick", "endpoint", "model", "prompt_tokens", "cached_tokens")} == {
        "request_id": "abc", "pick": decision.pick_id, "endpoint": "10.0.0.1:8000", "model": "m",
        "prompt_tokens": 128, "cached_tokens": {"gpu": 128},
    }  # fmt: skip
    assert ended == {
        "pick": decision.pick_id, "endpoint": "10.0.0.1:8000", "served_by": "10.0.0.9:8000", "cause": "completed",
        "status": 200, "duration_s": 1.25, "ttft_s": 0.5, "response_bytes": 90,
        "prompt_tokens": 128, "completion_tokens": 9, "cached_tokens": 64,
    }  # fmt: skip
    assert "canary" not in caplog.text
    assert "xxxx" not in caplog.text


@pytest.mark.parametrize(
    ("body", "head", "said"),
    [
        (b"canary", HEAD, {"status": 400, "code": "BadRequest"}),
        (completion(), RequestHead(HEAD.headers, frozenset()),
         {"status": 503, "code": "ServiceUnavailable", "reason": "rejected-no-endpoints"}),
    ],
)  # fmt: skip
def test_a_refusal_says_with_what(
    caplog: pytest.LogCaptureFixture, body: bytes, head: RequestHead, said: dict[str, object]
) -> None:
    with pytest.raises(EppError):
        World().director.decide(head, body)
    assert fields(caplog) == [{"request_id": "abc", **said}]
    assert "canary" not in caplog.text


def test_a_request_without_a_body_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    decision = world.director.decide_bodiless(HEAD)
    with pytest.raises(EppError):
        world.director.decide_bodiless(RequestHead(HEAD.headers, frozenset()))
    picked, refused = fields(caplog)
    assert (picked["pick"], picked["endpoint"]) == (decision.pick_id, decision.chosen[0].address)
    assert refused["status"] == 503


def test_names_that_clients_choose_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    head = RequestHead({":path": "/v1/completions", "x-request-id": "i" * 10_000})
    World().director.decide(head, completion(model="m" * 1000))
    (picked,) = fields(caplog)
    assert len(picked["request_id"]) == len(picked["model"]) == 128


def test_nothing_is_told_unless_somebody_debugs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "epp.picking.decision_log")
    World().director.decide(HEAD, completion())
    assert not fields(caplog)
