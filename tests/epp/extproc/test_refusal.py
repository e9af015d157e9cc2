"""Every refusal is written in the form of every API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from epp.client import LONGEST_ID, Api, Client, client_of
from epp.decision import RequestHead
from epp.errors import EppError, QueueFull, UnsupportedEncoding
from epp.extproc.options import ErrorFormat
from epp.extproc.refusal import written

GRPC_CODES = range(1, 17)


def refusals(kind: type[EppError] = EppError) -> Iterator[type[EppError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from refusals(each)


REFUSALS = sorted(set(refusals()), key=lambda kind: kind.__name__)


@pytest.fixture(params=REFUSALS, ids=lambda kind: kind.__name__)
def error(request: pytest.FixtureRequest) -> EppError:
    kind: type[EppError] = request.param
    return kind('the "value", é \ud800')


SENTENCE = 'the "value", é ?'


def test_openais_clients_read_message_type_and_code(error: EppError) -> None:
    refusal = written(error, ErrorFormat.API, Client())
    assert refusal.content_type == "application/json"
    (read,) = json.loads(refusal.body).values()
    assert (read["message"], read["param"], read["code"]) == (SENTENCE, error.param, error.http_status)
    assert read["type"].endswith("Error")


def test_anthropics_clients_read_type_and_message(error: EppError) -> None:
    refusal = written(error, ErrorFormat.API, Client(Api.ANTHROPIC, "r1"))
    assert refusal.content_type == "application/json"
    read = json.loads(refusal.body)
    assert (read["type"], read["error"]["message"], read["request_id"]) == ("error", SENTENCE, "r1")
    assert read["error"]["type"] in {
        "invalid_request_error", "not_found_error", "request_too_large", "rate_limit_error", "api_error",
        "overloaded_error",
    }  # fmt: skip
    assert "request_id" not in json.loads(written(error, ErrorFormat.API, Client(Api.ANTHROPIC)).body)


def test_grpc_clients_read_a_status_and_the_sentence(error: EppError) -> None:
    assert written(error, ErrorFormat.API, Client(Api.GRPC)) == (SENTENCE.encode(), "application/grpc")
    assert error.grpc_status in GRPC_CODES


@pytest.mark.parametrize("api", list(Api))
def test_as_text_all_clients_read_the_go_pickers_line(error: EppError, api: Api) -> None:
    refusal = written(error, ErrorFormat.TEXT, Client(api, "r1"))
    assert refusal == (error.body.encode("utf-8", "replace"), "")
    assert refusal.body.decode().endswith(SENTENCE)


def test_only_what_passes_is_worth_another_try(error: EppError) -> None:
    assert error.retry_after_s == (1 if error.http_status in (429, 503) else None)


@pytest.mark.parametrize(("wait_s", "told"), [(None, 1), (0.0, 1), (0.4, 1), (1.1, 2), (59.5, 60), (1e9, 60)])
def test_the_expected_wait_is_told_in_whole_seconds_of_a_minute_at_most(wait_s: float | None, told: int) -> None:
    assert QueueFull("full", wait_s=wait_s).retry_after_s == told


def test_a_packed_body_is_not_implemented_in_grpc() -> None:
    assert UnsupportedEncoding("packed").grpc_status == 12


@pytest.mark.parametrize(
    ("headers", "api"),
    [
        ({":path": "/v1/chat/completions"}, Api.OPENAI),
        ({":path": "/v1/chat/completions", "x-api-key": "k"}, Api.OPENAI),
        ({":path": "/v1/messages"}, Api.ANTHROPIC),
        ({":path": "/v1/messages?beta=true"}, Api.ANTHROPIC),
        ({":path": "/v1/messages/count_tokens"}, Api.ANTHROPIC),
        ({":path": "/v1/models", "anthropic-version": "2023-06-01"}, Api.ANTHROPIC),
        ({":path": "/vllm.grpc.engine.VllmEngine/Generate", "content-type": "application/grpc"}, Api.GRPC),
        ({":path": "/v1/messages", "content-type": "application/grpc+proto"}, Api.GRPC),
        ({}, Api.OPENAI),
    ],
)
def test_a_client_is_known_by_its_content_type_its_path_or_its_header(headers: dict[str, str], api: Api) -> None:
    assert client_of(RequestHead(headers)).api is api


def test_a_requests_id_is_cut_where_it_is_long() -> None:
    assert client_of(RequestHead({":path": "/v1/messages", "x-request-id": "i" * 9_999})).request_id == "i" * LONGEST_ID
