"""Requests follow the rewrite rules, which have precedence over the client's header."""

from __future__ import annotations

import json
from random import Random

import pytest

from epp.errors import BadRequest
from epp.parsers import OpenAIParser, PassthroughParser, SGLangHttpParser
from epp.parsers.base import UNREAD
from epp.picking import model_rewrites
from epp.picking.model_rewrites import ModelRewrites, RewritingParser, Rule

PATH = "/v1/completions"
EXACT = {"m": Rule("some", ("t",), (1,))}
ALL = Rule("rest", ("fallback",), (1,))


def parser(generic: Rule | None = ALL) -> RewritingParser:
    return RewritingParser(OpenAIParser(), ModelRewrites(EXACT, generic, Random(1)))


def body(**fields: object) -> bytes:
    return json.dumps({"prompt": "x"} | fields).encode()


def test_a_rule_beats_the_clients_header() -> None:
    parsed = parser().parse(PATH, body(model="m"), "from-the-header")
    assert (parsed.model, parsed.target_model) == ("m", "t")
    assert parsed.body == body(model="t")


def test_without_a_rule_the_header_counts() -> None:
    parsed = parser(generic=None).parse(PATH, body(model="other"), "from-the-header")
    assert (parsed.model, parsed.target_model) == ("other", "from-the-header")


@pytest.mark.parametrize(
    ("sent", "forwarded"),
    [
        (b'{"prompt":"x"}', b'{"model":"fallback","prompt":"x"}'),
        (b' {"model" : null, "prompt":"x"}', b' {"model" : "fallback", "prompt":"x"}'),
        (b'{"prompt":"x", "model":""}', b'{"prompt":"x", "model":"fallback"}'),
    ],
)
def test_a_missing_model_is_served_by_the_rule_for_all(sent: bytes, forwarded: bytes) -> None:
    parsed = parser().parse(PATH, sent)
    assert (parsed.model, parsed.target_model, parsed.body) == ("", "fallback", forwarded)


def test_a_missing_model_without_a_rule_for_all_is_refused() -> None:
    with pytest.raises(BadRequest, match="model not found"):
        parser(generic=None).parse(PATH, body())


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"model": 5, "prompt": "x"}', b'{"model": "m"}', b"\xff"])
def test_what_the_parser_refuses_is_refused_and_not_counted(broken: bytes) -> None:
    rewriting = parser()
    with pytest.raises(BadRequest):
        rewriting.parse(PATH, broken)
    assert not rewriting.rewrites.decisions


def test_a_body_that_nobody_reads_is_not_rewritten() -> None:
    rewriting = parser()
    with pytest.raises(BadRequest, match="no parser for path"):
        rewriting.parse("/tokenize", body(model="m"))
    assert not rewriting.rewrites.decisions
    passing = RewritingParser(PassthroughParser(), rewriting.rewrites)
    for unread in (body(model="m"), body(), b"\xff"):
        assert passing.parse("/tokenize", unread) is UNREAD
    assert not rewriting.rewrites.decisions


def test_a_body_whose_api_has_no_model_is_given_none() -> None:
    rewriting = RewritingParser(SGLangHttpParser(), parser().rewrites)
    assert rewriting.parse("/generate", json.dumps({"text": "x"}).encode()).body is None
    assert not rewriting.rewrites.decisions


def test_a_rewrite_to_the_same_model_leaves_the_body_alone() -> None:
    assert parser().parse(PATH, body(model="fallback")).body is None


def test_decisions_are_counted_by_rewrite_model_and_target() -> None:
    rewriting = parser()
    for model in ("m", "m", "other"):
        rewriting.parse(PATH, body(model=model))
    assert rewriting.rewrites.decisions == {("some", "m", "t"): 2, ("rest", "other", "fallback"): 1}


def test_invented_models_do_not_grow_the_count_without_bound() -> None:
    rewriting = parser()
    for number in range(1100):
        rewriting.parse(PATH, body(model=f"invented-{number}"))
    assert len(rewriting.rewrites.decisions) == 1001
    assert rewriting.rewrites.decisions["rest", "other", "fallback"] == 100


def test_rewrites_that_come_and_go_do_not_grow_the_count_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_rewrites, "MAX_SERIES", 20)
    rewriting = parser()
    for number in range(50):
        list(rewriting.rewrites.resources.stage({"n": Rule(f"r{number}", ("t" * 1024,), (1,))}))
        assert len(list(rewriting.rewrites.resources.use())) == (number > 0)
        rewriting.parse(PATH, body(model="n"))
    assert len(rewriting.rewrites.decisions) == 21
    assert rewriting.rewrites.decisions["other", "other", "other"] == 30
    assert max(len(target) for _, _, target in rewriting.rewrites.decisions) < 1024


def test_new_rules_count_on_where_the_old_ones_were() -> None:
    before, after = parser(), parser()
    before.parse(PATH, body(model="m"))
    after.rewrites.take_over(before.rewrites)
    after.parse(PATH, body(model="m"))
    assert after.rewrites.decisions == {("some", "m", "t"): 2}
