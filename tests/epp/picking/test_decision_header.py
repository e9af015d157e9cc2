"""``x-tierwise-decision`` is answered on request, if it is allowed, and within the limits of a header."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from typing_extensions import override

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.decision import Decision, RequestHead
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from epp.picking.decision_header import HEADER, MOST_CHARACTERS
from epp.pool.pool import Endpoint
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Candidate, Detail, Request
from scorers.load.queue import QueueScorer

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: approx-prefix-cache-producer, name: gpu}
  - {type: approx-prefix-cache-producer, name: cpu, parameters: {lruCapacityPerServer: 4000}}
  - {type: queue-scorer}
  - {type: tier-cost-scorer}
  - {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}
"""
BODY = json.dumps({"model": "m", "prompt": "sphinx of black quartz " * 100}).encode()


class Speechless(QueueScorer):
    """A scorer that fails to explain its scores."""

    type_name = "speechless"

    @override
    def details(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Detail]:
        raise ValueError("no words")


class Absurd(QueueScorer):
    """A scorer whose explanation is ``says``."""

    type_name = "absurd"
    says: Any = None
    asked_about = 0

    @override
    def details(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Detail]:
        Absurd.asked_about = len(candidates)
        return self.says if isinstance(self.says, list) else [self.says] * len(candidates)


def later() -> Callable[[], float]:
    """A clock that jumps so far that earlier prompts are computed."""
    times = count(1.0, 10.0)
    return lambda: next(times)


def core(endpoints: int = 3, *, tells: bool = True, config: str = CONFIG) -> Core:
    clock = later()
    plan = build(load_text(config), kinds={**known_kinds(), "speechless": Speechless, "absurd": Absurd})
    made = Core(plan, Settings(exchange=ExchangeSettings(tell_decisions=tells)), clock)
    made.pool.replace([Endpoint(f"10.0.{i >> 8}.{i & 255}:8000") for i in range(endpoints)])
    return made


def decided(made: Core, **headers: str) -> Decision:
    head = RequestHead({":path": "/v1/completions", **{k.replace("_", "-"): v for k, v in headers.items()}})
    return made.director.decide(head, BODY)


def told(decision: Decision) -> Any:
    return json.loads(decision.response_headers[HEADER])


def test_it_has_the_numbers_of_the_decision() -> None:
    made = core()
    first = decided(made)
    decision = decided(made, x_tierwise_decision="1")
    said = told(decision)
    assert said["endpoint"] == decision.chosen[0].address == first.chosen[0].address
    assert said["fallbacks"] == [decision.chosen[1].address]
    assert said["prompt_tokens"] == 575
    assert said["others"] == 0
    assert [row["endpoint"] for row in said["candidates"][:2]] == [c.address for c in decision.chosen]
    chosen = said["candidates"][0]
    assert chosen["tokens"] == {"gpu": 512, "cpu": 512}
    assert chosen["scores"]["queue-scorer"] == [1.0, 1.0]
    assert chosen["why"].startswith(f"{chosen['endpoint']}: holds 512 of 575 tokens on the GPU; ")
    assert chosen["numbers"]["gpu_tokens"] == 512
    assert chosen["numbers"]["total_s"] < said["candidates"][1]["numbers"]["total_s"]


@pytest.mark.parametrize("value", ["", "0", "no", "False"])
def test_it_is_told_only_to_who_asks(value: str) -> None:
    assert HEADER not in decided(core()).response_headers
    assert HEADER not in decided(core(), x_tierwise_decision=value).response_headers


def test_it_is_not_told_unless_the_operator_allows_it() -> None:
    assert HEADER not in decided(core(tells=False), x_tierwise_decision="1").response_headers


def test_without_prices_it_has_what_the_scorers_said() -> None:
    plain = CONFIG.replace("  - {type: tier-cost-scorer}\n", "")
    row = told(decided(core(config=plain), x_tierwise_decision="1"))["candidates"][0]
    assert set(row) == {"endpoint", "tokens", "total", "scores"}


def test_it_has_the_reason_that_explain_has() -> None:
    made = core()
    decided(made)
    said = told(decided(made, x_tierwise_decision="1"))
    assert said["reason"].startswith(f"{said['endpoint']} has the highest total, 2.000; next is ")
    assert "For it: tier-cost-scorer (+" in said["reason"]


def test_many_fallbacks_do_not_make_it_longer() -> None:
    many = core(1000, config=CONFIG.replace("maxNumOfEndpoints: 2", "maxNumOfEndpoints: 1000"))
    decision = decided(many, x_tierwise_decision="1")
    assert len(decision.chosen) == 1000
    assert len(decision.response_headers[HEADER]) <= MOST_CHARACTERS
    said = told(decision)
    assert said["fallbacks"] == [c.address for c in decision.chosen[1:9]]
    assert len(said["candidates"]) + said["others"] == 1000


def test_plugins_are_asked_about_those_that_are_shown_only() -> None:
    Absurd.says = Detail("x")
    decided(core(300, config=CONFIG.replace("type: queue-scorer", "type: absurd")), x_tierwise_decision="1")
    assert Absurd.asked_about == 8


@pytest.mark.parametrize("says", [None, [Detail("one of three")], ["x", "y", "z"], Detail(1), Detail("x", {"n": "m"})])  # type: ignore[arg-type, dict-item]
def test_nonsense_from_a_plugin_is_skipped_and_costs_no_request(says: object) -> None:
    Absurd.says = says
    made = core(config=CONFIG.replace("type: queue-scorer", "type: absurd"))
    assert told(decided(made, x_tierwise_decision="1"))["candidates"][0]["why"], "others go on explaining"
    assert made.plan.profile.failures == {"absurd": 1}


def test_numbers_that_are_none_are_left_out() -> None:
    Absurd.says = Detail("what\nnow \u2028", {"good": 1.0, "bad": float("nan"), "worse": float("inf")})
    plain = CONFIG.replace("  - {type: tier-cost-scorer}\n", "").replace("type: queue-scorer", "type: absurd")
    decision = decided(core(config=plain), x_tierwise_decision="1")
    assert decision.response_headers[HEADER].isprintable()
    assert told(decision)["candidates"][0]["numbers"] == {"good": 1.0}


def test_of_a_large_fleet_it_names_some_and_counts_the_others() -> None:
    decision = decided(core(300), x_tierwise_decision="1")
    said = told(decision)
    assert len(decision.response_headers[HEADER]) <= MOST_CHARACTERS
    assert len(said["candidates"]) + said["others"] == 300
    assert said["candidates"][0]["endpoint"] == decision.chosen[0].address


def test_it_is_one_line_of_ascii_without_the_prompt() -> None:
    named = CONFIG.replace("{type: queue-scorer}", "{type: queue-scorer, name: ünbekannt}")
    text = decided(core(config=named), x_tierwise_decision="1").response_headers[HEADER]
    assert text.isascii()
    assert text.isprintable()
    assert "sphinx" not in text


def test_a_plugin_that_fails_to_explain_is_skipped_and_counted() -> None:
    made = core(config=CONFIG.replace("type: queue-scorer", "type: speechless"))
    row = told(decided(made, x_tierwise_decision="1"))["candidates"][0]
    assert row["why"], "others go on explaining"
    assert made.plan.profile.failures == {"speechless": 1}


def test_a_proxy_that_keeps_responses_is_asked_for_their_headers() -> None:
    made = core()
    lean = ExchangeSettings(tell_decisions=True, may_ask=True, access_log=True)
    asked = {}
    for value in ("1", "0"):
        message = ProcessingRequest()
        message.protocol_config.request_body_mode = 2  # BUFFERED
        message.protocol_config.response_body_mode = 0  # NONE
        for key, header in ((":path", "/v1/completions"), (HEADER, value)):
            message.request_headers.headers.headers.add(key=key, raw_value=header.encode())
        (answer,) = Exchange(made.director, lean).received(message, 1.0)
        asked[value] = ProcessingResponse.FromString(answer).HasField("mode_override")
    assert asked == {"1": True, "0": False}
