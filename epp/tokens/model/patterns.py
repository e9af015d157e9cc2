"""What a pre-tokenizer's regular expression does between a letter and a space.

A text may be cut there, and its halves tokenized one by one, if no match ever takes a letter and the space behind it,
and if nothing but the text itself decides where matches begin. Both are derived from the expression: every way through
it is followed, as positions that may be adjacent. Constructs that are not understood count as possible, or are refused.

Source: Glushkov's position automata, reduced to two questions: may a part begin with a space, and may it end with a
letter.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

LETTERS = frozenset(ascii_lowercase + ascii_uppercase)
EVERY = LETTERS | {" "}
"""All characters that matter to the two questions."""
CLASSES = {
    "L": LETTERS, "Lu": frozenset(ascii_uppercase), "Ll": frozenset(ascii_lowercase), "Lt": frozenset[str](),
    "Lm": frozenset[str](), "Lo": frozenset[str](), "M": frozenset[str](), "Mn": frozenset[str](),
    "N": frozenset[str](), "Nd": frozenset[str](), "P": frozenset[str](), "S": frozenset[str](),
    "Z": frozenset(" "), "Zs": frozenset(" "), "Han": frozenset[str](), "Hiragana": frozenset[str](),
    "Katakana": frozenset[str](), "Hangul": frozenset[str](),
}  # fmt: skip
ESCAPES = {"s": frozenset(" "), "S": LETTERS, "d": frozenset[str](), "D": EVERY, "w": LETTERS, "W": frozenset(" ")}
CONTROLS = frozenset("rnt")
QUANTIFIER = re.compile(r"[*+?][+?]?|\{\d+(?:,\d*)?\}[+?]?")
BLANKS = re.compile(r"\\s\+?")
NOT_BEFORE_TEXT = r"(?!\S)"
"""The only lookahead that treats the end of a text like a space."""


class Unclear(Exception):
    """Raised if the expression has a construct that this module does not know."""


class PatternPart(NamedTuple):
    """How the matches of a piece of the expression begin and end."""

    nullable: bool
    begins_with_space: bool
    ends_with_letter: bool


EMPTY = PatternPart(nullable=True, begins_with_space=False, ends_with_letter=False)


def keeps_apart(pattern: str) -> bool:
    """Return whether no match of ``pattern`` takes a letter and the space behind it, wherever it begins."""
    try:
        return not _read(pattern).crossed
    except (Unclear, IndexError):
        return False


def takes_every_blank(pattern: str) -> bool:
    """Return whether any whitespace that no other alternative of ``pattern`` takes is a match of its own."""
    try:
        return any(BLANKS.fullmatch(branch) for branch in _read(pattern).branches)
    except (Unclear, IndexError):
        return False


def _read(pattern: str) -> _Reader:
    reader = _Reader(pattern)
    reader.alternatives()
    if reader.at != len(pattern):
        raise Unclear
    return reader


class _Reader:
    """Reads an expression from left to right.

    ``crossed`` becomes true once a letter may stand before a space in a match.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.crossed = False
        self.branches: list[str] = []
        """The outermost alternatives of the expression."""
        self._depth = 0

    def alternatives(self) -> PatternPart:
        parts = []
        self._depth += 1
        while True:
            began = self.at
            parts.append(self._sequence())
            if self._depth == 1:
                self.branches.append(self.pattern[began : self.at])
            if not self._next("|"):
                break
        self._depth -= 1
        return PatternPart(*map(any, zip(*parts, strict=True)))

    def _sequence(self) -> PatternPart:
        whole = EMPTY
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self._quantified()
            self.crossed |= whole.ends_with_letter and part.begins_with_space
            whole = PatternPart(
                whole.nullable and part.nullable,
                whole.begins_with_space or (whole.nullable and part.begins_with_space),
                part.ends_with_letter or (part.nullable and whole.ends_with_letter),
            )
        return whole

    def _quantified(self) -> PatternPart:
        part = self._atom()
        found = QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            return part
        self.at = found.end()
        how = found.group()
        if how[0] in "*+" or (how[0] == "{" and how not in ("{1}", "{0,1}")):
            self.crossed |= part.ends_with_letter and part.begins_with_space
        return part._replace(nullable=part.nullable or how[0] in "*?" or how.startswith("{0"))

    def _atom(self) -> PatternPart:
        if self.pattern.startswith(NOT_BEFORE_TEXT, self.at):
            self.at += len(NOT_BEFORE_TEXT)
            return EMPTY
        if self._next("("):
            if self._next("?") and not (self._next("i:") or self._next(":")):
                raise Unclear
            part = self.alternatives()
            if not self._next(")"):
                raise Unclear
            return part
        characters = self._class() if self._next("[") else self._outside_class()
        return PatternPart(False, " " in characters, bool(characters & LETTERS))

    def _class(self) -> frozenset[str]:
        negated = self._next("^")
        known: frozenset[str] = frozenset()
        while not self._next("]"):
            if self.pattern.startswith(("[", "&&"), self.at):
                raise Unclear  # a class inside a class
            first = self.pattern[self.at]
            characters = self._single(either_case=not negated)
            if self.pattern.startswith("-", self.at) and self.pattern[self.at + 1] != "]":
                self.at += 1
                if first == "\\" or self.pattern[self.at] == "\\":
                    raise Unclear
                last = self.pattern[self.at]
                self.at += 1
                characters = frozenset(c for c in EVERY if first <= c <= last)
                if not negated:
                    characters |= frozenset(c.swapcase() for c in characters)
            known |= characters
        return EVERY - known if negated else known

    def _outside_class(self) -> frozenset[str]:
        character = self.pattern[self.at]
        if character in "^$*+?{":
            raise Unclear
        if character == ".":
            self.at += 1
            return EVERY
        return self._single(either_case=True)

    def _single(self, *, either_case: bool) -> frozenset[str]:
        # Whether case matters here is not tracked: a character that may match counts in both cases, and one that is
        # excluded counts only as it is written.
        character = self.pattern[self.at]
        self.at += 1
        if character != "\\":
            return frozenset((character, character.swapcase()) if either_case else character) & EVERY
        escaped = self.pattern[self.at]
        self.at += 1
        if escaped in ESCAPES:
            return ESCAPES[escaped]
        if escaped == "p" and self._next("{"):
            end = self.pattern.index("}", self.at) if "}" in self.pattern[self.at :] else -1
            name = self.pattern[self.at : end]
            if end < 0 or name not in CLASSES:
                raise Unclear
            self.at = end + 1
            return CLASSES[name]
        if escaped in CONTROLS:
            return frozenset()
        if not escaped.isalnum():
            return frozenset(escaped) & EVERY
        raise Unclear  # anchors, references and all other escapes

    def _next(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False
