"""The picker behind a gateway: both bodies full duplex through it, and the subset that the gateway allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from epp.extproc.options import ErrorFormat
from tests.e2e.site.background import Background
from tests.e2e.site.engine import PIECES, Engine
from tests.e2e.site.gateway import subset_list, subset_string
from tests.e2e.site.router import Router, behind_gateway, refuse_three_and_answer_one

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def shared(loop: Background, two: list[Engine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    with behind_gateway(loop, two, tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_completions_and_chats_streamed_and_not(routed: Router, engines: list[Engine]) -> None:
    assert routed.complete("x") in {engine.address for engine in engines}
    assert len(list(routed.client.completions.create(model="m", prompt="x", stream=True))) == PIECES
    say = [{"role": "user", "content": "hello"}]
    assert routed.client.chat.completions.create(model="m", messages=say).usage is not None
    assert len(list(routed.client.chat.completions.create(model="m", messages=say, stream=True))) == PIECES


@pytest.mark.parametrize("size", [1, 61_999, 62_000, 62_001, 1_000_000, 5_000_000])
def test_a_body_of_any_size_arrives_whole(routed: Router, engines: list[Engine], size: int) -> None:
    prompt = "x" * size
    routed.complete(prompt)
    assert [body["prompt"] for engine in engines for body in engine.bodies] == [prompt]


def test_the_first_piece_arrives_before_the_last_is_made(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    pieces = iter(routed.client.completions.create(model="m", prompt="x", stream=True))
    assert next(pieces)
    for engine in engines:
        routed.loop.call(engine.gate.set)
    assert len(list(pieces)) == PIECES - 1


@pytest.mark.parametrize("hint", [subset_list, subset_string])
def test_only_the_subset_is_picked_from(routed: Router, engines: list[Engine], hint: type) -> None:
    for engine in engines * 3:
        assert routed.complete(f"{engine.address}", extra_headers=hint([engine.address])) == engine.address


@pytest.mark.parametrize("hint", [subset_list, subset_string])
def test_the_subset_holds_for_requests_without_a_body(routed: Router, engines: list[Engine], hint: type) -> None:
    for engine in engines * 3:
        models = routed.client.models.list(extra_headers=hint([engine.address]))
        assert models.data[0].owned_by == engine.address


@pytest.mark.parametrize("hint", [subset_list, subset_string])
def test_another_port_at_the_same_address_is_another_endpoint(routed: Router, hint: type) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        routed.complete("x", extra_headers=hint(["127.0.0.1:9"]))
    assert refused.value.status_code == 503


def test_an_empty_subset_is_refused(routed: Router) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        routed.complete("x", extra_headers=subset_list([]))
    assert refused.value.status_code == 503


def test_a_request_that_cannot_be_understood_gets_400(routed: Router) -> None:
    status, text = routed.ask("/completions", b"{")
    assert status == 400
    assert text.startswith("inference error: BadRequest - ")


def test_refused_requests_leave_a_connection_as_it_was(routed: Router) -> None:
    refuse_three_and_answer_one(routed.port)


def test_a_gateway_hands_on_what_a_picker_writes_for_the_clients_api(
    loop: Background, engines: list[Engine], tmp_path: Path
) -> None:
    with behind_gateway(loop, engines, tmp_path, error_format=ErrorFormat.API) as routed:
        with pytest.raises(openai.BadRequestError, match="`messages` must hold at least one message"):
            routed.client.chat.completions.create(model="m", messages=[])
        refuse_three_and_answer_one(routed.port)


def test_a_client_that_leaves_in_the_middle_is_uncounted(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    stream = routed.client.completions.create(model="m", prompt="x", stream=True)
    next(iter(stream))
    stream.close()
    routed.settle()


def test_an_engine_that_dies_in_the_middle_ends_the_answer_and_is_uncounted(
    routed: Router, engines: list[Engine]
) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    pieces = iter(routed.client.completions.create(model="m", prompt="x", stream=True))
    first = next(pieces).choices[0].text
    for engine in engines:
        engine.break_off = True
        routed.loop.call(engine.gate.set)
    assert first in {engine.address for engine in engines}
    with pytest.raises(Exception, match=r"(?i)incomplete|closed|peer|connection|payload"):
        list(pieces)
