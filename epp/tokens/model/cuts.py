"""Where a text may be cut so that its pieces, tokenized one by one, give the tokens of the whole.

1. Before a token that is searched for in the text itself, ahead of everything else (``<|im_start|>``), provided that no
   other such token can reach into it and that it takes no whitespace before it.
2. Between an ASCII letter and a space with a letter behind it, provided that the pre-tokenizer always splits there,
   too, that it treats each side without regard to the other, and that no normalizer and no added token sees across the
   cut.

Not every tokenizer allows the second kind. Cuts that a tokenizer does not allow are not made, so the result is exact in
any case.

Source: the way the tokenizers library works, as of 0.23: added tokens are extracted first, the leftmost first, and the
longest of those that begin at the same place. The text between them is normalized, pre-tokenized and encoded piece by
piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from string import punctuation

import msgspec

from epp.tokens.model.patterns import keeps_apart, takes_every_blank

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The expression by which ``ByteLevel`` splits, with ``use_regex``."""
CHARACTER_WISE = frozenset(("NFC", "NFD", "NFKC", "NFKD", "Lowercase"))
"""Normalizers that treat an ASCII letter and a space the same way, whatever stands before or after them."""
NO_WORD = frozenset(punctuation) - {"_"}
"""Characters that are not part of a word by any definition."""
LETTER_SPACE_LETTER = r"(?<=[A-Za-z]) (?=[A-Za-z])"
LETTER_SPACE = re.compile(r"[A-Za-z] ")
LEAST_CHARACTERS = 1024
"""Minimum length of a piece. Of the values from 512 to 4,096, this one costs the next turn of a conversation least, at
12 to 400 KB. Source: the parts of benchmarks/picker/tokenizing.py with each of the values, two shared x86-64 cores,
2026-11.
"""
LOOK_CHARACTERS = 1 << 14
"""How many characters are searched for a cut at a time, so that other threads get their turn in between."""


class AddedToken(msgspec.Struct, frozen=True):
    """An added token, as in ``tokenizer.json``."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


class Component(msgspec.Struct, frozen=True):
    """A normalizer or a pre-tokenizer, as in ``tokenizer.json``; which fields are set depends on its type."""

    type: str
    normalizers: tuple[Component, ...] = ()
    pretokenizers: tuple[Component, ...] = ()
    pattern: dict[str, str] = {}
    behavior: str = ""
    add_prefix_space: bool = True
    use_regex: bool = True


class Described(msgspec.Struct, frozen=True):
    """The part of ``tokenizer.json`` that determines how texts are taken apart."""

    added_tokens: tuple[AddedToken, ...] = ()
    normalizer: Component | None = None
    pre_tokenizer: Component | None = None


class Cuts:
    """The places to cut texts for one tokenizer."""

    def __init__(self, described: Described, normalized: Callable[[str], str]) -> None:
        """``normalized`` returns what the tokenizer's normalizer makes of a text."""
        self.tokens = starts(described.added_tokens)
        """The tokens before which a text may be cut."""
        self.in_text = separates_words(described) and not _reaches_over(described.added_tokens, normalized)
        """Whether a text may be cut between words."""
        ways = [LETTER_SPACE_LETTER] if self.in_text else []
        ways += [re.escape(token) for token in sorted(self.tokens)]
        self._place = re.compile("|".join(ways)) if ways else None

    def pieces(self, text: str, least: int = LEAST_CHARACTERS) -> Iterator[str]:
        """Yield the pieces of ``text``; all but the last have at least ``least`` characters, which is 1 or more.

        If two texts begin alike, so do their pieces, except for the last of them.
        """
        began, length = 0, len(text)
        while length - began > least and (end := self._next(text, began + least)) is not None:
            yield text[began:end]
            began = end
        yield text[began:] if began else text

    def _next(self, text: str, at: int) -> int | None:
        if self._place is None:
            return None
        overlap = max(map(len, self.tokens), default=0) + 1
        while at < len(text):
            found = self._place.search(text, at, at + LOOK_CHARACTERS)
            if found is not None:
                return found.start()
            at += max(1, LOOK_CHARACTERS - overlap)
        return None


def starts(added: Sequence[AddedToken]) -> list[str]:
    """Return the contents of the tokens before which a text may be cut.

    An occurrence must be that token wherever it stands: no other token may cover its beginning from the left. (A longer
    token that begins at the same place is taken instead, but a cut there is just as good.) And a token that is a whole
    word must be able to end before it as it does before the end of a text.
    """
    raw = [token for token in added if not token.normalized and token.content]
    whole_words = any(token.single_word for token in raw)
    movable = {token.content for token in raw if token.lstrip or token.single_word}
    found = []
    for token in raw:
        text = token.content
        if token.lstrip or token.single_word or text[0].isspace() or (whole_words and text[0] not in NO_WORD):
            continue
        if any(other != text and other.startswith(text) for other in movable):
            continue
        if not any(_covers(other.content, text) for other in raw):
            found.append(text)
    return found


def _covers(other: str, text: str) -> bool:
    """Return whether ``other``, beginning before ``text``, may end inside it or behind it."""
    return any(other.startswith(text[: len(other) - i], i) for i in range(1, len(other)))


def separates_words(described: Described) -> bool:
    """Return whether the pre-tokenizer cuts between a letter and a space, and nothing looks across the cut."""
    normalizers = list(_flat(described.normalizer))
    if not all(one.type in CHARACTER_WISE for one in normalizers):
        return False
    stages = list(_flat(described.pre_tokenizer))
    return all(_is_local(stage) for stage in stages) and any(_cuts_words(stage) for stage in stages)


def _flat(component: Component | None) -> Iterator[Component]:
    if component is None:
        return
    if component.type == "Sequence":
        for inner in (*component.normalizers, *component.pretokenizers):
            yield from _flat(inner)
    else:
        yield component


def _expression(stage: Component) -> str | None:
    """Return the expression by which ``stage`` splits, if every match is a piece of its own; else None."""
    if stage.type == "ByteLevel":
        return GPT2 if stage.use_regex else None
    if stage.type == "Split" and stage.behavior in ("Isolated", "Removed"):
        return stage.pattern.get("Regex")
    return None


def _is_local(stage: Component) -> bool:
    """Return whether ``stage`` treats both sides of a cut as it would without the cut."""
    if stage.type == "Digits":
        return True
    if stage.type == "ByteLevel" and (stage.add_prefix_space or not stage.use_regex):
        return not stage.add_prefix_space
    expression = _expression(stage)
    return expression is not None and keeps_apart(expression)


def _cuts_words(stage: Component) -> bool:
    expression = _expression(stage)
    return expression is not None and takes_every_blank(expression)


def _reaches_over(added: Sequence[AddedToken], normalized: Callable[[str], str]) -> bool:
    """Return whether an added token may lie on both sides of a letter and a space."""
    for token in added:
        contents = {token.content, normalized(token.content)} if token.normalized else {token.content}
        for text in contents:
            if LETTER_SPACE.search(text) or token.single_word or (token.rstrip and text[-1:].isalpha()):
                return True
    return False
