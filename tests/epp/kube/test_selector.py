"""Label selectors: what is accepted, and where an error is shown."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import ConfigError
from epp.kube.selector import checked


@pytest.mark.parametrize(
    "text",
    [
        "app=vllm",
        "app==vllm",
        "app != vllm",
        "app",
        "!app",
        "app=",
        "a=b,c in (d,e),!f,g",
        "llm-d.ai/role in ( decode , both )",
        "tier notin (a)",
        "in in (in)",
        "a in (,b)",
        " a = b , c ",
        "x" * 63,
    ],
)
def test_a_selector_of_the_grammar_is_taken_as_it_is(text: str) -> None:
    assert checked(text) == text.strip()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a=b c=d", 5),
        ("a=b,", 5),
        ("a in b", 6),
        ("a in (b", 8),
        ("=b", 1),
        ("!=b", 2),
        ("a=b/c", 3),
        ("a=" + "x" * 64, 3),
        ("A/b=c", 1),
        ("-a=b", 1),
        ("a>1", 2),
    ],
)
def test_an_error_is_shown_with_its_position(text: str, at: int) -> None:
    with pytest.raises(ConfigError, match=f"missing at character {at}: "):
        checked(text)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_selector_would_select_every_pod_and_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="selects every pod"):
        checked(text)


@given(st.text(max_size=40))
def test_any_text_is_taken_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert checked(text) == text.strip()
