"""Which parser reads what."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers import DEFAULT_PARSERS, PARSERS, ByPath, Parsed, Parser, PassthroughParser
from scorers.base import NoParameters


class Named(Parser[NoParameters]):
    """A parser that reports its own name as the model."""

    type_name = "named"

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        return Parsed(model=self.name, target_model="", prompts=(), prompt_tokens=1, streaming=False)


def reading(name: str, *suffixes: str) -> Named:
    class Reading(Named):
        paths: ClassVar[tuple[str, ...]] = suffixes

    return Reading(name=name)


def reader(parsers: ByPath, path: str) -> str:
    return parsers.parse(path, b"").model


def test_the_longest_suffix_of_all_parsers_decides() -> None:
    parsers = ByPath([reading("a", "/generate", "/messages"), reading("b", "/v1/generate", "/generate/x")])
    assert reader(parsers, "/generate") == "a"
    assert reader(parsers, "/inference/v1/generate") == "b"
    assert reader(parsers, "/generate/x") == "b"
    assert reader(parsers, "/v1/messages") == "a"


def test_of_equal_suffixes_the_first_listed_decides() -> None:
    assert reader(ByPath([reading("a", "/x"), reading("b", "/x")]), "/x") == "a"


def test_a_parser_without_paths_reads_what_is_left_wherever_it_stands_in_the_list() -> None:
    parsers = ByPath([reading("rest"), reading("a", "/x"), reading("never")])
    assert reader(parsers, "/x") == "a"
    assert reader(parsers, "/y") == "rest"


def test_without_one_what_is_left_is_refused_and_the_known_paths_named() -> None:
    with pytest.raises(BadRequest, match="no parser for path '/y'; read are paths that end in /z, /x"):
        ByPath([reading("a", "/x"), reading("b", "/z")]).parse("/y", b"")
    with pytest.raises(BadRequest, match=f"no parser for path '{'y' * 200}'"):
        ByPath([reading("a", "/x")]).parse("y" * 100_000, b"")


@given(st.lists(st.lists(st.text("ab/", min_size=1, max_size=4), max_size=3), max_size=4), st.text("ab/", max_size=8))
def test_any_path_has_the_reader_that_a_plain_search_finds(suffixes: list[list[str]], path: str) -> None:
    parsers = ByPath([reading(str(i), *each) for i, each in enumerate(suffixes)])
    fitting = [(len(s), -i) for i, each in enumerate(suffixes) for s in each if path.endswith(s)]
    rest = [-i for i, each in enumerate(suffixes) if not each]
    if fitting or rest:
        assert reader(parsers, path) == str(-max(fitting)[1] if fitting else -max(rest))
    else:
        with pytest.raises(BadRequest):
            parsers.parse(path, b"")


def test_the_default_parsers_read_every_api_and_let_the_rest_pass() -> None:
    parsers = ByPath([parser() for parser in DEFAULT_PARSERS])
    assert parsers.parse("/v1/rerank", b"\xff").prompts == ()
    for path, body in (
        ("/v1/completions", b'{"model":"m","prompt":"x"}'),
        ("/v1/messages", b'{"model":"m","messages":[{"role":"user","content":"x"}]}'),
        ("/inference/v1/generate", b'{"model":"m","token_ids":[1]}'),
    ):
        assert len(parsers.parse(path, body).prompts) == 1, path


def test_only_the_passthrough_parser_has_no_paths() -> None:
    assert [parser for parser in PARSERS if not parser.paths] == [PassthroughParser]
