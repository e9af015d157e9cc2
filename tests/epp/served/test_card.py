"""The list of models as engines respond with it, and invalid lists."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.scrape.reading.error import ScrapeError
from epp.served.card import MAX_CARDS, MAX_LIST_BYTES, read_cards

VLLM = {
    "object": "list",
    "data": [
        {"id": "prod", "object": "model", "created": 1, "owned_by": "vllm", "root": "Qwen/Qwen3-32B", "parent": None,
         "max_model_len": 40960, "permission": [{"id": "modelperm-1", "allow_sampling": True}]},
        {"id": "tuned", "object": "model", "created": 1, "owned_by": "vllm", "root": "/adapters/1", "parent": "prod",
         "max_model_len": None},
    ],
}  # fmt: skip


def test_a_list_of_vllm_has_a_base_model_and_an_adapter() -> None:
    base, adapter = read_cards(json.dumps(VLLM).encode())
    assert (base.id, base.root, base.parent) == ("prod", "Qwen/Qwen3-32B", None)
    assert (adapter.id, adapter.root, adapter.parent) == ("tuned", "/adapters/1", "prod")
    assert base.fields == VLLM["data"][0]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"not found", "not a list of models"),
        (b'{"detail": "Not Found"}', "not a list of models"),
        (b'{"data": {}}', "not a list of models"),
        (b'{"data": [{"object": "model"}]}', "an id has 1 to 1024 characters"),
        (b'{"data": [{"id": 7}]}', "names a model '7'"),
        (b'{"data": [{"id": ""}]}', "an id has 1 to 1024 characters"),
        (b" " * (MAX_LIST_BYTES + 1), f"{MAX_LIST_BYTES} are read"),
        (json.dumps({"data": [{"id": str(n)} for n in range(MAX_CARDS + 1)]}).encode(), f"{MAX_CARDS} are read"),
    ],
)
def test_what_is_no_list_is_refused(page: bytes, message: str) -> None:
    with pytest.raises(ScrapeError, match=message):
        read_cards(page)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_list_or_refused(page: bytes) -> None:
    with suppress(ScrapeError):
        read_cards(page)
