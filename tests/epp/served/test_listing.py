"""The responses to ``GET /v1/models``."""

from __future__ import annotations

import json

import pytest

from epp.scrape.reading.error import ScrapeError
from epp.served.card import ModelCard, read_cards
from epp.served.listing import anthropic_list, openai_list, requested_model, union


def cards(*listed: dict[str, object]) -> tuple[ModelCard, ...]:
    return read_cards(json.dumps({"data": listed}).encode())


A = {"id": "a", "object": "model", "created": 5, "owned_by": "vllm", "root": "/w", "max_model_len": 100}
B = {"id": "b", "object": "model", "created": 6, "owned_by": "sglang"}


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("GET", "/v1/models", ""),
        ("GET", "/prefix/v1/models", ""),
        ("GET", "/v1/models/a", "a"),
        ("GET", "/v1/models/Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
        ("GET", "/v1/models/Qwen%2FQwen3-32B", "Qwen/Qwen3-32B"),
        ("GET", "/v1/models/", None),
        ("GET", "/v1/modelsx", None),
        ("POST", "/v1/models", None),
        ("GET", "/v1/files/v1/models/a", None),
        ("GET", "/health", None),
        ("GET", "/v1/models/" + "a" * 5000, None),
    ],
)
def test_the_model_that_a_path_requests(method: str, path: str, asked: str | None) -> None:
    assert requested_model(method, path) == asked


def test_the_union_has_each_model_once_as_its_engine_describes_it() -> None:
    assert list(union([cards(A), cards(A | {"created": 9}), cards(B)]).values()) == [A, B]


def test_of_engines_that_differ_the_shortest_context_counts_and_no_weights_are_named() -> None:
    first = cards(A)
    (merged,) = union(
        [first, cards(A | {"max_model_len": 60, "root": "/v"}), cards(A | {"max_model_len": 80})]
    ).values()
    assert merged == {key: value for key, value in A.items() if key != "root"} | {"max_model_len": 60}
    assert first[0].fields == A, "an engine's own card stays as it is"


def test_the_list_in_both_forms() -> None:
    known = union([cards(A), cards(B)])
    assert json.loads(openai_list(known)) == {"object": "list", "data": [A, B]}
    assert json.loads(anthropic_list(known)) == {
        "data": [
            {"type": "model", "id": "a", "display_name": "a", "created_at": "1970-01-01T00:00:05Z"},
            {"type": "model", "id": "b", "display_name": "b", "created_at": "1970-01-01T00:00:06Z"},
        ],
        "has_more": False,
        "first_id": "a",
        "last_id": "b",
    }
    assert json.loads(anthropic_list({}))["first_id"] is None


def test_a_list_may_be_nonsense_in_every_field_but_the_ids() -> None:
    strange: dict[str, object] = {"id": "a", "created": "yesterday", "max_model_len": "long", "root": 7}
    known = union([cards(strange), cards(A)])
    assert known["a"]["max_model_len"] == 100
    assert json.loads(anthropic_list(known))["data"][0]["created_at"] == "1970-01-01T00:00:00Z"
    with pytest.raises(ScrapeError):
        cards({"id": None})
