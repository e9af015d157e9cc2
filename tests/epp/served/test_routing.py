"""Requests by the model they name: placed, refused, answered and explained."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.decision import Cause, Decision, Outcome, RequestHead
from epp.errors import ModelNotFound, NoEndpoints
from epp.explain.explainer import Explainer
from epp.extproc.exchange import Exchange
from epp.extproc.options import ErrorFormat, ExchangeSettings
from epp.pool.pool import Endpoint, EngineMetrics
from epp.served.card import read_cards
from epp.served.listing import ModelAnswer
from epp.served.router import ATTEMPTS
from epp.server.core import Core
from epp.server.settings import Settings
from epp.standalone.routes import RETRIES
from scorers.base import Silence
from tests.epp.doubles import read, request_body, request_headers

ONE, TWO, THREE = (f"10.0.0.{n}:8000" for n in (1, 2, 3))
HEAD = RequestHead({":path": "/v1/completions", ":method": "POST"})
MODELS = RequestHead({":path": "/v1/models", ":method": "GET"})
WITHOUT = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n"
LONG = "a document that many requests begin with, long enough for blocks " * 80


def core(lists: dict[str, Sequence[str] | None], *, config: str | None = None) -> Core:
    made = Core(build(None if config is None else load_text(config)), Settings())
    made.pool.replace([Endpoint(address) for address in lists])
    for at, (address, names) in enumerate(lists.items(), 1):
        candidate = made.pool.candidate(address)
        assert candidate is not None
        made.pool.observe(candidate.slot, EngineMetrics(gpu_blocks=10_000, block_tokens=16), at)
        if names is not None:
            tell(made, address, *names)
    return made


def tell(made: Core, address: str, *names: str, root: str | None = "/weights") -> None:
    listed = [{"id": name, "object": "model", "root": root} for name in names]
    made.catalog.set_list(address, read_cards(json.dumps({"data": listed}).encode()), complete=True)


def body(model: str, prompt: str = "x", **more: object) -> bytes:
    return json.dumps({"model": model, "prompt": prompt, **more}).encode()


def served_at(made: Core, model: str, times: int = 12, prompt: str = "x") -> set[str]:
    return {made.director.decide(HEAD, body(model, f"{n}{prompt}")).chosen[0].address for n in range(times)}


def test_every_request_goes_to_an_endpoint_that_serves_its_model() -> None:
    made = core({ONE: ["a"], TWO: ["b"], THREE: ["a", "b"]})
    assert served_at(made, "a") == {ONE, THREE}
    assert served_at(made, "b") == {TWO, THREE}


def test_fallbacks_serve_the_model_too() -> None:
    made = core({ONE: ["a"], TWO: ["b"], THREE: ["a"]})
    made.use(build(picks=3))
    assert {c.address for c in made.director.decide(HEAD, body("a")).chosen} == {ONE, THREE}


def destination(made: Core, model: str) -> list[str]:
    return made.director.decide(HEAD, body(model)).destination.split(",")


def test_the_proxys_retries_stay_among_the_endpoints_that_may_serve_the_model() -> None:
    """A proxy that has tried the whole list chooses by itself, and another model's engine would respond with 404."""
    made = core({ONE: ["a"], TWO: ["b"], THREE: ["a"]})
    assert ATTEMPTS > RETRIES
    first, *retried = destination(made, "a")
    assert {first, retried[0]} == {ONE, THREE}, "each of them before one is tried again"
    assert set(retried) == {ONE, THREE}
    assert len(retried) == RETRIES
    assert destination(made, "b") == [TWO] * ATTEMPTS
    made.use(build(picks=2))
    assert len(destination(made, "a")) == ATTEMPTS


def test_retries_of_a_large_pool_take_further_endpoints_of_the_model() -> None:
    serving = [f"10.1.0.{n}:8000" for n in range(30)]
    made = core({ONE: ["b"], **{address: ["a"] for address in serving}})
    tried = destination(made, "a")
    assert len(tried) == len(set(tried)) == ATTEMPTS
    assert set(tried) <= set(serving)


def test_where_every_endpoint_may_serve_the_model_the_proxy_retries_as_it_likes() -> None:
    made = core({ONE: ["a"], TWO: ["a"]})
    assert len(destination(made, "a")) == 1
    assert len(destination(core({ONE: ["a"], TWO: ["b"]}, config=WITHOUT), "a")) == 1


def test_an_unknown_model_is_refused_before_any_wait() -> None:
    made = core({ONE: ["a"], TWO: ["b"]})
    arrival = made.director.read(HEAD, body("nope"))
    with pytest.raises(ModelNotFound, match=r"The model `nope` does not exist\. Served here: `a`, `b`; GET /v1/models"):
        made.director.admit(arrival, b"", lambda _: None)
    assert len(made.ledger) == 0


def test_a_long_name_is_not_repeated_in_full() -> None:
    made = core({ONE: ["a"]})
    with pytest.raises(ModelNotFound) as refused:
        made.director.decide(HEAD, body("n" * 1000))
    assert len(str(refused.value)) < 300


def test_an_unknown_model_goes_to_an_endpoint_without_a_list() -> None:
    made = core({ONE: ["a"], TWO: None})
    assert served_at(made, "nope") == {TWO}
    tell(made, TWO, "b")
    with pytest.raises(ModelNotFound):
        served_at(made, "nope")


def test_a_model_whose_endpoints_the_proxy_does_not_allow_is_unavailable_and_exists() -> None:
    made = core({ONE: ["a"], TWO: ["b"]})
    only_two = RequestHead(HEAD.headers, frozenset({TWO}))
    with pytest.raises(NoEndpoints, match="none of the endpoints that the proxy allows serves the model `a`"):
        made.director.decide(only_two, body("a"))


def silence(made: Core, address: str, why: Silence) -> None:
    candidate = made.pool.candidate(address)
    assert candidate is not None
    made.pool.mark_stale(candidate.slot, why)


def test_endpoints_of_another_model_do_not_make_up_for_one_that_is_late() -> None:
    made = core({ONE: ["a"], TWO: ["b"], THREE: ["b"]})
    silence(made, ONE, Silence.LATE)
    assert served_at(made, "a") == {ONE}, "none of the others knows the model"


def test_a_model_whose_endpoints_are_all_out_of_reach_is_unavailable_and_exists() -> None:
    made = core({ONE: ["a"], TWO: ["a"], THREE: ["b"]})
    silence(made, ONE, Silence.GONE)
    assert served_at(made, "a") == {TWO}
    silence(made, TWO, Silence.GONE)
    with pytest.raises(
        NoEndpoints, match=r"every endpoint that serves the model `a` is out of reach: 10\.0\.0\.1:8000"
    ):
        made.director.decide(HEAD, body("a"))
    assert served_at(made, "b") == {THREE}


def test_a_refusal_claims_no_more_of_endpoints_than_they_have_listed() -> None:
    made = core({ONE: None, TWO: ["b"]})
    silence(made, ONE, Silence.GONE)
    with pytest.raises(NoEndpoints, match=r"every endpoint that may serve the model `a` is out of reach"):
        made.director.decide(HEAD, body("a"))


def test_a_pool_of_one_model_that_is_out_of_reach_is_tried_all_the_same() -> None:
    made = core({ONE: ["a"], TWO: ["a"]})
    for address in (ONE, TWO):
        silence(made, address, Silence.GONE)
    assert served_at(made, "a") <= {ONE, TWO}


def test_requests_without_a_model_may_go_to_every_endpoint() -> None:
    made = core({ONE: ["a"], TWO: ["b"]})
    health = RequestHead({":path": "/health", ":method": "GET"})
    seen = set()
    for _ in range(60):
        decision = made.director.decide_bodiless(health)
        assert isinstance(decision, Decision)
        seen.add(decision.chosen[0].address)
    assert seen == {ONE, TWO}


def test_bodies_that_no_parser_reads_go_by_the_model_they_name_where_endpoints_differ() -> None:
    made = core({ONE: ["a"], TWO: ["b"]})
    rerank = RequestHead({":path": "/v1/rerank", ":method": "POST"})
    for _ in range(6):
        assert made.director.decide(rerank, b'{"model": "b", "query": "x"}').chosen[0].address == TWO
    assert {made.director.decide(rerank, b"\xff\x00").chosen[0].address for _ in range(60)} == {ONE, TWO}


def test_the_model_that_a_rewrite_names_counts() -> None:
    matches, targets = "[{model: {value: front}}]", "[{modelRewrite: b}]"
    rules = f"inferenceModelRewrites: [{{name: r, rules: [{{matches: {matches}, targets: {targets}}}]}}]\n"
    made = core({ONE: ["a"], TWO: ["b"]}, config=WITHOUT.replace("[{", "[{type: served-model-filter}, {") + rules)
    assert served_at(made, "front") == {TWO}


def test_without_the_filter_every_endpoint_is_taken_to_serve_every_model() -> None:
    made = core({ONE: ["a"], TWO: ["b"]}, config=WITHOUT)
    assert served_at(made, "nope") == {ONE, TWO}
    assert isinstance(made.director.decide_bodiless(MODELS), Decision)


def test_a_reload_switches_the_filter_on_with_what_is_known() -> None:
    made = core({ONE: ["a"], TWO: ["b"]}, config=WITHOUT)
    made.use(build())
    assert served_at(made, "a") == {ONE}
    made.use(build(load_text(WITHOUT)))
    assert served_at(made, "nope"), "nobody is asked what it serves"


# Doubts


@pytest.mark.parametrize(("model", "status", "doubted"), [("a", 200, []), ("a", 404, [ONE]), ("a", 503, [])])
def test_the_list_of_an_engine_that_refuses_a_listed_model_is_read_again(
    model: str, status: int, doubted: list[str]
) -> None:
    made = core({ONE: ["a"]})
    doubts: list[str | None] = []
    made.catalog.on_outdated.append(doubts.append)
    pick = made.director.decide(HEAD, body(model))
    made.director.picks.ended(pick.pick_id, Outcome(Cause.COMPLETED, status=status))
    assert doubts == doubted


def test_a_refusal_has_all_lists_read_again() -> None:
    made = core({ONE: ["a"]})
    doubts: list[str | None] = []
    made.catalog.on_outdated.append(doubts.append)
    with pytest.raises(ModelNotFound):
        made.director.decide(HEAD, body("nope"))
    assert set(doubts) == {None}


# The index


def cached(made: Core, model: str, address: str) -> int:
    decision = made.director.decide(HEAD, body(model, LONG))
    assert decision.request is not None
    candidate = made.pool.candidate(address)
    assert candidate is not None
    return decision.request.cached["gpu-prefix-cache-producer"].tokens.get(candidate.slot, 0)


def test_names_of_the_same_weights_share_what_is_cached() -> None:
    made = core({ONE: ["a", "alias"], TWO: ["b"]})
    assert cached(made, "alias", ONE) == 0
    assert cached(made, "a", ONE) > 1000


def test_models_of_one_endpoint_with_unknown_weights_share_nothing() -> None:
    made = core({ONE: None})
    tell(made, ONE, "a", "b", root=None)
    assert cached(made, "a", ONE) == 0
    assert cached(made, "b", ONE) == 0
    assert cached(made, "a", ONE) > 1000


def test_what_an_endpoint_held_of_other_weights_is_forgotten() -> None:
    made = core({ONE: ["a"]})
    assert cached(made, "a", ONE) == 0
    tell(made, ONE, "a")
    assert cached(made, "a", ONE) > 1000
    tell(made, ONE, "a", root="/others")
    assert cached(made, "a", ONE) == 0


# The list


def answer(
    made: Core, path: str = "/v1/models", subset: frozenset[str] | None = None, **headers: str
) -> dict[str, object]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answered = made.director.decide_bodiless(RequestHead({":path": path, ":method": "GET", **named}, subset))
    assert isinstance(answered, ModelAnswer)
    assert answered.status == 200
    found: dict[str, object] = json.loads(answered.body)
    return found


def test_the_list_is_the_union_of_all_endpoints_that_the_client_may_reach() -> None:
    made = core({ONE: ["a"], TWO: ["b", "a"]})
    assert [card["id"] for card in answer(made)["data"]] == ["a", "b"]  # type: ignore[attr-defined]
    assert [card["id"] for card in answer(made, subset=frozenset({ONE}))["data"]] == ["a"]  # type: ignore[attr-defined]
    assert answer(made, anthropic_version="2023-06-01")["has_more"] is False
    assert answer(made, "/v1/models/b")["id"] == "b"
    assert answer(made, "/v1/models/b", anthropic_version="2023-06-01")["type"] == "model"
    assert made.catalog.lists_answered == 5
    assert len(made.ledger) == 0


def test_the_list_is_made_once_until_it_changes() -> None:
    """Clients may request it at any rate, and it can be the union of a thousand lists."""
    made = core({ONE: ["a"], TWO: ["b"]})
    first = made.director.decide_bodiless(MODELS)
    assert isinstance(first, ModelAnswer)
    cards = read_cards(b'{"data": [{"id": "a", "object": "model", "root": "/weights", "created": 12}]}')
    made.catalog.set_list(ONE, cards, complete=True)  # vLLM says another time with each answer
    again = made.director.decide_bodiless(MODELS)
    assert isinstance(again, ModelAnswer)
    assert again.body is first.body
    tell(made, TWO, "b", "c")
    assert [card["id"] for card in answer(made)["data"]] == ["a", "b", "c"]  # type: ignore[attr-defined]
    made.catalog.remove_list(TWO)
    assert [card["id"] for card in answer(made)["data"]] == ["a"]  # type: ignore[attr-defined]
    tell(made, TWO, "d")
    made.pool.replace([Endpoint(TWO)])
    assert [card["id"] for card in answer(made)["data"]] == ["d"]  # type: ignore[attr-defined]


def test_a_request_for_the_card_of_an_unknown_model_is_a_404() -> None:
    made = core({ONE: ["a"]})
    with pytest.raises(ModelNotFound):
        answer(made, "/v1/models/nope")


def test_before_any_endpoint_has_listed_models_an_engine_responds() -> None:
    made = core({ONE: None})
    assert isinstance(made.director.decide_bodiless(MODELS), Decision)


def test_the_proxy_is_given_the_list_at_once_and_the_stream_is_over() -> None:
    made = core({ONE: ["a"]})
    exchange = Exchange(made.director, ExchangeSettings())
    head = request_headers(end_of_stream=True)
    for header in head.request_headers.headers.headers:
        if header.key == ":path":
            header.raw_value = b"/v1/models"
        if header.key == ":method":
            header.raw_value = b"GET"
    (said,) = read(exchange.received(head, 1.0))
    assert said.immediate_response.status.code == 200
    assert json.loads(said.immediate_response.body)["data"][0]["id"] == "a"
    headers = {h.header.key: h.header.raw_value for h in said.immediate_response.headers.set_headers}
    assert headers["content-type"] == b"application/json"
    assert exchange.over


def test_the_proxy_gets_404_for_an_unknown_model() -> None:
    made = core({ONE: ["a"]})
    exchange = Exchange(made.director, ExchangeSettings(error_format=ErrorFormat.API))
    exchange.received(request_headers(), 1.0)
    (said,) = read(exchange.received(request_body(body("nope")), 1.0))
    assert said.immediate_response.status.code == 404
    assert said.immediate_response.grpc_status.status == 5
    error = json.loads(said.immediate_response.body)["error"]
    assert error["message"].startswith("The model `nope` does not exist.")
    assert (error["type"], error["param"], error["code"]) == ("NotFoundError", "model", 404), "as vLLM says it"


def test_a_model_whose_endpoint_does_not_answer_stays_on_the_list() -> None:
    made = core({ONE: ["a"], TWO: ["b"], THREE: ["b"]})
    silence(made, ONE, Silence.GONE)
    assert [card["id"] for card in answer(made)["data"]] == ["a", "b"]  # type: ignore[attr-defined]


# The explanation


def test_an_explanation_names_the_endpoints_that_do_not_serve_the_model() -> None:
    made = core({ONE: ["a"], TWO: ["b"]})
    explainer = Explainer(made.director, made.pool, lambda: made.plan)
    explained = explainer.explain(HEAD, body("a"))
    assert explained.pick == ONE
    assert {row.address: row.dropped_by for row in explained.candidates} == {ONE: None, TWO: "served-model-filter"}
    refused = explainer.explain(HEAD, body("nope"))
    assert refused.refusal is not None
    assert refused.refusal.status == 404
    assert {row.dropped_by for row in refused.candidates} == {"served-model-filter"}
