"""Tables and sentences in consoles of any width."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from epp.printing.prose import Prose, show
from epp.printing.sheet import NARROWEST, Sheet


def printed(part: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False), [part])
    return out.getvalue().splitlines()


def sheet() -> Sheet:
    made = Sheet("What is held", "tier", "tokens of each endpoint", "why", sentences="why")
    made.add("gpu", "300,560", "what is left of [the] memory beside the weights of the model")
    made.add("cpu", "409,600")
    return made


def test_a_table_that_fits_has_a_line_for_each_row() -> None:
    assert printed(sheet(), 120) == [
        "What is held",
        "tier  tokens of each endpoint  why",
        "gpu                   300,560  what is left of [the] memory beside the weights of the model",
        "cpu                   409,600",
    ]


def test_headings_and_sentences_are_wrapped_before_a_table_becomes_a_list() -> None:
    assert [line.rstrip() for line in printed(sheet(), 48)] == [
        "What is held",
        "        tokens",
        "       of each",
        "tier  endpoint  why",
        "gpu    300,560  what is left of [the] memory",
        "                beside the weights of the model",
        "cpu    409,600",
    ]


def test_what_is_still_too_wide_becomes_a_list() -> None:
    assert printed(sheet(), 36) == [
        "What is held",
        "gpu",
        "    tokens of each endpoint",
        "        300,560",
        "    why",
        "        what is left of [the] memory",
        "        beside the weights of the",
        "        model",
        "cpu",
        "    tokens of each endpoint",
        "        409,600",
    ]


CELLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS, st.lists(CELLS, min_size=1, max_size=9)), min_size=1, max_size=4),
    width=st.integers(NARROWEST + 10, 120),
)
def test_every_cell_is_printed_whole_in_any_width(rows: list[tuple[str, str, str, list[str]]], width: int) -> None:
    made = Sheet("", "name", "a-heading", "another heading", "why", sentences="why")
    for *cells, why in rows:
        made.add(*cells, " ".join(why))
    lines = printed(made, width)
    words = " ".join(lines).split()
    for *cells, why in rows:
        for cell in (*cells, *why):
            assert cell in words
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_sentence_is_wrapped_between_words_and_a_path_stays_whole(width: int) -> None:
    path = "/a/path/that/is/longer/than/any/of/these/lines/and/would/be/cut/by/others/report.md"
    lines = printed(Prose(f"It is written to {path} now."), width)
    assert path in lines
    assert all(len(line) <= width for line in lines if line != path)
