"""Numbers are computed from ``usage`` and sent to the proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.decision import Usage
from epp.errors import ConfigError
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.picking.usage_reporter import Report
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    World,
    completion,
    read,
    request_body,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
)

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=4)
ANSWER = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}'


def plan(expression: str, condition: str = "", **key: str) -> Plan:
    attribute = {"key": {"name": "cost"} | key, "expression": expression, "condition": condition}
    return of({"attributes": [attribute]})


def of(parameters: dict[str, Any]) -> Plan:
    plugins = [{"type": "request-attribute-reporter", "parameters": parameters}]
    return build(load_text(json.dumps(HEAD | {"plugins": plugins})))


def reported(expression: str, condition: str = "") -> int | None:
    made = plan(expression, condition)
    reports = made.profile.reports(USAGE)
    return reports[0].value if reports else None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("usage.prompt_tokens + usage.completion_tokens", 10),
        ("usage.total_tokens", 10),
        ("usage.completion_tokens * 2.5", 7),
        ("usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens", 3),
        ("(has(usage.audio_tokens) ? usage.audio_tokens : 0.0) + usage.prompt_tokens", 7),
        ("0 - 1", -1),
    ],
)
def test_an_expression_over_usage_is_a_number(expression: str, value: int) -> None:
    assert reported(expression) == value


def test_a_condition_says_of_which_responses() -> None:
    assert reported("usage.prompt_tokens", "usage.prompt_tokens > 5.0") == 7
    assert reported("usage.prompt_tokens", "usage.prompt_tokens > 7.0") is None


def test_the_namespace_is_that_of_load_balancing_unless_written() -> None:
    assert plan("1").profile.reports(USAGE) == [Report("envoy.lb", "cost", 1)]
    assert plan("1", namespace="mine").profile.reports(USAGE) == [Report("mine", "cost", 1)]


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("usage.nothing", ""),
        ("'text'", ""),
        ("true", ""),
        ("1.0 / 0.0", ""),
        ("unknown", ""),
        ("1", "usage.nothing"),
        ("1", "3"),
    ],
)
def test_what_fails_on_any_usage_is_refused_at_start(expression: str, condition: str) -> None:
    with pytest.raises(ConfigError, match=r"\.parameters: attributes\[0\]: fails on any usage: .*known: usage"):
        plan(expression, condition)


def test_what_cannot_be_computed_is_counted_and_not_reported() -> None:
    made = plan("1.0 / (usage.prompt_tokens - 1.0)")
    assert made.profile.reports(Usage(prompt_tokens=1)) == []
    assert made.profile.failures == {"request-attribute-reporter": 1}


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "plugins[0].parameters: missing field attributes"),
        ({"attributes": []}, "plugins[0].parameters.attributes: "),
        ({"attributes": [{"key": {"name": "a"}, "expression": "1"}] * 2}, "plugins[0].parameters.attributes: "),
        (
            {"attributes": [{"key": {}, "expression": "1"}]},
            "plugins[0].parameters.attributes[0].key: missing field name",
        ),
        (
            {"attributes": [{"key": {"name": "a"}, "expression": ""}]},
            "plugins[0].parameters.attributes[0].expression: ",
        ),
        (
            {"attributes": [{"key": {"name": "a"}, "expression": "1 +"}]},
            "plugins[0].parameters: attributes[0].expr",
        ),
    ],
)
def test_what_is_no_attribute_is_refused_by_its_key_path(parameters: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(parameters)
    assert str(caught.value).startswith(path)


def world() -> World:
    return World(profile=plan("usage.total_tokens").profile)


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED])
@pytest.mark.parametrize("trailers", [False, True])
def test_the_last_message_of_a_response_carries_the_number(mode: int, trailers: bool) -> None:
    exchange = Exchange(world().director, ExchangeSettings())
    exchange.received(request_headers(modes=(BUFFERED, mode)), 0)
    exchange.received(request_body(completion()), 0)
    answers = exchange.received(response_headers(), 1)
    answers += exchange.received(response_body(ANSWER[:40], end_of_stream=False), 2)
    answers += exchange.received(response_body(ANSWER[40:], end_of_stream=not trailers), 3)
    answers += exchange.received(response_trailers(), 4) if trailers else []
    *others, last = read(answers)
    assert last.dynamic_metadata["envoy.lb"]["cost"] == 10
    assert last.WhichOneof("response") == ("response_trailers" if trailers else "response_body")
    assert not any(other.HasField("dynamic_metadata") for other in others)


def test_a_response_without_usage_reports_nothing() -> None:
    exchange = Exchange(world().director, ExchangeSettings())
    exchange.received(request_headers(modes=(BUFFERED, FULL_DUPLEX)), 0)
    exchange.received(request_body(completion()), 0)
    exchange.received(response_headers(), 1)
    (answer,) = read(exchange.received(response_body(b"{}"), 2))
    assert not answer.HasField("dynamic_metadata")


@pytest.mark.parametrize(("encoding", "asked"), [("identity", FULL_DUPLEX), ("gzip", NONE)])
def test_a_lean_proxy_is_asked_for_the_bodies_that_can_be_read(encoding: str, asked: int) -> None:
    exchange = Exchange(world().director, ExchangeSettings(access_log=True, may_ask=True))
    exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
    exchange.received(request_body(completion()), 0)
    (answer,) = read(exchange.received(response_headers(content_encoding=encoding), 1))
    assert answer.mode_override.response_body_mode == asked
