"""Texts that are cut before they are encoded have exactly the tokens of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from epp.tokens.model.cuts import GPT2
from epp.tokens.model.model import ModelTokenizer, Text
from epp.tokens.model.patterns import keeps_apart, takes_every_blank
from epp.tokens.model.segments import Segments
from epp.tokens.model.vocabulary import packed
from tests.epp.tokens.trained import CL100K, DEEPSEEK, EAST_ASIAN, KINDS, NUMBERS, O200K

PIECES = st.sampled_from(
    [
        "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|im_", "start|>", "<mask>", "<a>", "<b>",
        "<c>", "<a><b><c>", "the cache", "the", "cache", " cache", "router", "routers", "e\u0301ngine", "éngine",
        "\u0301", "a", "A", " ", "  ", "\n", "\n\n", " \n", "\t", "\r\n", "foo bar", "it's", "WE'RE", "'s ", "'", ".",
        "!?", "12345", " 7 ", "漢字",
        "かな ", "naïve", "👩‍👩‍👧", "\u00a0", "\u3000", "ß", "İ", "<s>", "</s>", "▁", "x y z", "/", "\\",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_text_that_is_cut_has_the_tokens_of_the_whole(kind: str, trained: Callable[[str], Path]) -> None:
    folder = trained(kind)
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary = ModelTokenizer(folder, 1 << 20).vocabulary

    @given(TEXTS, st.integers(1, 12))
    def check(text: str, least: int) -> None:
        pieces = list(vocabulary.cuts.pieces(text, least))
        assert "".join(pieces) == text
        assert b"".join(vocabulary.encode(pieces)) == packed(whole.encode(text, add_special_tokens=False).ids)

    check()


@pytest.mark.parametrize("kind", ["chatml", "headers", "gpt2", "o200k", "deepseek"])
def test_most_tokenizers_allow_cuts_between_words(kind: str, trained: Callable[[str], Path]) -> None:
    assert ModelTokenizer(trained(kind), 1 << 20).vocabulary.cuts.in_text


@pytest.mark.parametrize(("kind", "tokens"), [
    ("sentencepiece", {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}),
    ("metaspace", {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}),
    ("awkward", {"<a><b>", "<|im_end|>"}),
])  # fmt: skip
def test_others_are_cut_at_tokens_that_nothing_reaches_into(
    kind: str, tokens: set[str], trained: Callable[[str], Path]
) -> None:
    cuts = ModelTokenizer(trained(kind), 1 << 20).vocabulary.cuts
    assert (cuts.in_text, set(cuts.tokens)) == (False, tokens)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_known_is_not_encoded_again_and_changes_nothing(kind: str, trained: Callable[[str], Path]) -> None:
    folder = trained(kind)
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))

    model = ModelTokenizer(folder, 1)

    @given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), st.integers(100, 4000))
    def check(conversations: list[tuple[str, str]], cache_bytes: int) -> None:
        model.segments, text = Segments(cache_bytes), ""
        for more, other in conversations:
            text += more
            for asked in (text, other):
                texts = [Text(asked, False)]
                partly = model.look_up(texts)
                (ids,) = model.put_together(texts, partly, model.encode(partly))
                assert ids == packed(whole.encode(asked, add_special_tokens=False).ids)
                model.segments.check()

    check()


def test_a_conversation_that_goes_on_costs_its_new_end(trained: Callable[[str], Path]) -> None:
    model = ModelTokenizer(trained("chatml"), 1 << 20)
    long = "<|im_start|>user\n" + "a long story " * 5000
    missing = []
    for text in (long, long, long + "<|im_end|>\n<|im_start|>assistant\nand then"):
        partly = model.look_up([Text(text, False)])
        model.put_together([Text(text, False)], partly, model.encode(partly))
        missing.append(partly.missing_characters)
    assert missing[0] == len(long)
    assert missing[1] == 0
    assert missing[2] < 5000


@pytest.mark.parametrize(
    "pattern", [GPT2, CL100K, O200K, NUMBERS, EAST_ASIAN, DEEPSEEK, r"\s+|\S+", r"[^\s]+|\s", r"x{0,1}"]
)
def test_an_expression_whose_matches_part_letters_and_spaces(pattern: str) -> None:
    assert keeps_apart(pattern)


@pytest.mark.parametrize("pattern", [
    r"\p{L}+ ?", r".+", r"[a-z ]+", r"(?:a )+", r"(?:\p{L}|\s)+", r"\p{L}+\d*\s", r"[^\d]+", r"\p{Letter}+", r"\bfoo",
    r"^a", r"a$", r"(?=a)", r"(?<= )\S+", r"(?<x>a)", r"\p{L}+(?:x|y )", r"[[a-z]&&[b]]", r"(a", r"a)", r"[a", "\\",
    r"\w+\s?", r"(?i:[^A-Z]+)",
])  # fmt: skip
def test_an_expression_that_may_join_them_or_is_not_understood(pattern: str) -> None:
    assert not keeps_apart(pattern)


def test_whether_whitespace_always_matches_by_itself() -> None:
    assert takes_every_blank(CL100K)
    assert not takes_every_blank(NUMBERS)
    assert not takes_every_blank(r"(?:a|\s+|b)c")
