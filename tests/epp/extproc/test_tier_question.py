"""kvengine is asked only in requests whose response is seen and can carry its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from epp.extproc.exchange import Exchange
from epp.extproc.pending_answer import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingResponse
from epp.pool.pool import EngineMetrics
from scorers.base import Tier, TierReport
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    Gate,
    World,
    completion,
    read,
    request_body,
    request_headers,
)

ASKED = {"kv_transfer_params": {"kvengine_report": True}}
KVENGINE = EngineMetrics(tiers={Tier.CPU: TierReport(capacity_tokens=1000)})


def world(engine: EngineMetrics = KVENGINE, gate: Gate | None = None) -> World:
    made = World(endpoints=1, admission=gate)
    made.pool.observe(made.pool.candidates()[0].slot, engine, began_at=1)
    return made


def sent(
    made: World,
    body: bytes,
    modes: tuple[int, int] = (FULL_DUPLEX, FULL_DUPLEX),
    *,
    gate: Gate | None = None,
    asks: bool = True,
    **headers: str,
) -> bytes:
    """Return the body that the engine gets."""
    resumed: list[bytes] = []
    exchange = Exchange(
        made.director,
        ExchangeSettings(ask_kvengine=asks),
        lambda error: resumed.extend(exchange.resumed(error, 0.0)),
    )
    exchange.received(request_headers(modes=modes, **headers), 0.0)
    answers = exchange.received(request_body(body), 0.0)
    if gate is not None:
        gate.settle()
        answers = resumed
    return forwarded(read(answers), body)


def forwarded(answers: list[ProcessingResponse], body: bytes) -> bytes:
    pieces = [
        a.request_body.response.body_mutation.streamed_response.body for a in answers if a.HasField("request_body")
    ]
    if len(answers) == 1:
        common = answers[0].request_body.response
        changed = common.body_mutation.body
        set_headers = {h.header.key: h.header.raw_value for h in common.header_mutation.set_headers}
        if changed:
            assert set_headers["content-length"] == str(len(changed)).encode()
        return changed or body
    set_headers = {
        h.header.key: h.header.raw_value for h in answers[0].request_headers.response.header_mutation.set_headers
    }
    whole = b"".join(pieces)
    if whole != body:
        assert set_headers["content-length"] == str(len(whole)).encode()
    return whole


@pytest.mark.parametrize("modes", [(FULL_DUPLEX, FULL_DUPLEX), (BUFFERED, STREAMED)])
def test_the_question_is_one_more_field(modes: tuple[int, int]) -> None:
    body = completion("x" * 100)
    got = sent(world(), body, modes)
    assert json.loads(got) == json.loads(body) | ASKED
    assert got.endswith(body[1:]), "what the client wrote stays as it is"


def test_a_rewritten_model_is_asked_too() -> None:
    got = sent(world(), completion(), x_llm_d_model_name_rewrite="other")
    assert json.loads(got) == json.loads(completion()) | {"model": "other"} | ASKED


def test_a_request_that_waited_is_asked_where_its_body_is_here() -> None:
    gate = Gate()
    assert json.loads(sent(world(gate=gate), completion(), gate=gate)) == json.loads(completion()) | ASKED


@pytest.mark.parametrize(
    ("engine", "more", "said"),
    [
        (EngineMetrics(), {}, {}),  # no kvengine there
        (KVENGINE, {"stream": True}, {}),  # a stream cannot tell
        (KVENGINE, {"kv_transfer_params": {"do_remote_decode": True}}, {}),  # the client's own
        (KVENGINE, {}, {"asks": False}),
        (KVENGINE, {}, {"modes": (BUFFERED, NONE)}),  # nobody sees the answer
    ],
)
def test_other_requests_pass_byte_for_byte(
    engine: EngineMetrics, more: Mapping[str, Any], said: Mapping[str, Any]
) -> None:
    body = completion(**more)
    assert sent(world(engine), body, **said) == body


def test_what_is_not_asked_of_a_path_is_left_alone() -> None:
    made = world()
    body = json.dumps({"model": "m", "input": "hello"}).encode()
    exchange = Exchange(made.director, ExchangeSettings(ask_kvengine=True))
    message = request_headers()
    for header in message.request_headers.headers.headers:
        if header.key == ":path":
            header.raw_value = b"/v1/embeddings"
    exchange.received(message, 0.0)
    assert forwarded(read(exchange.received(request_body(body), 0.0)), body) == body
