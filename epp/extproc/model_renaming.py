"""Put the name of the model that the client requested back into a response, in pieces of any size.

A response has the name of its model in the ``model`` field of its JSON object, or of each event's; the events of the
Responses API have it in ``response.model``, those of the Messages API in ``message.model``. Only these values are
replaced, and only where they are the name that was sent to the engine. Every other byte passes unchanged, as does
anything that is not a JSON object.

Only the beginning of such a value is kept back, and at most as many bytes as the name can take. Depth is a number, so
nesting costs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import msgspec

SPACE = re.compile(rb"[ \t\n\r]*+")
STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
SCALAR = re.compile(rb'[^"{}\[\],:]*+')
DEEP = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
LINE_ENDS = re.compile(rb"[\r\n]++")
QUOTE, BACKSLASH, COMMA, COLON = b'"\\,:'
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = b"{}[]"

KEY_BYTES = 64
"""A limit on stored keys: more than ``model`` takes with every letter escaped."""
DATA = b"data:"


class Renamer(Protocol):
    """Replaces names in a response body, which it is given in order."""

    def feed(self, piece: bytes) -> bytes:
        """Return the bytes to send on: those kept back before, and ``piece`` less what is kept now. Never raises."""

    def end(self) -> bytes:
        """Return what was kept back."""


class DocumentNames:
    """Replaces the name in one JSON document; the objects under the ``nested`` keys contain it, too."""

    def __init__(self, engine: str, client: str, nested: frozenset[bytes] = frozenset()) -> None:
        self._engine, self._client = engine, msgspec.json.encode(client)
        self._plain = msgspec.json.encode(engine)
        self._longest = 6 * len(engine.encode("utf-16-le")) // 2 + 2
        self._nested = nested
        self._pieces: list[bytes] = []
        self.begin()

    def begin(self) -> None:
        """Expect another document. Nothing may be kept back at this point."""
        # States are plain functions, since a bound method would make every response a reference cycle.
        self._state: Callable[[DocumentNames, bytes, int], int] = DocumentNames._start
        self._depth = self._live = 0  # of brackets; and that of the innermost object whose keys matter
        self._key = b""
        self._held = b""
        self._escaped = False  # whether the last byte of an unfinished string escapes the next
        self._copied = 0

    def feed(self, piece: bytes) -> bytes:
        """Return ``piece`` with the name replaced, after what was kept back; a partial name is kept back."""
        self._pieces.clear()
        self._copied = at = 0
        size = len(piece)
        while at < size:
            at = self._state(self, piece, at)
        if not self._pieces and not self._copied:
            return piece
        self._pieces.append(piece[self._copied :])
        return b"".join(self._pieces)

    def line_ended(self) -> bytes:
        """Return what was kept back at the end of a line, where an unfinished string is not a JSON string."""
        if self._state in (
            DocumentNames._in_key,
            DocumentNames._in_string,
            DocumentNames._in_name,
            DocumentNames._in_deep_string,
        ):
            self._state = DocumentNames._rest
        return self.end()

    def end(self) -> bytes:
        """Return what was kept back."""
        held, self._held = self._held, b""
        return held

    # Each state takes the bytes from ``at``, at least one, and returns where the next state goes on.

    def _start(self, piece: bytes, at: int) -> int:
        at = _match(SPACE, piece, at)
        if at < len(piece):
            if piece[at] != OPEN:
                return self._enter(DocumentNames._rest, at)
            self._depth = self._live = 1
            return self._enter(DocumentNames._before_key, at + 1)
        return at

    def _rest(self, piece: bytes, at: int) -> int:  # noqa: ARG002
        return len(piece)

    def _before_key(self, piece: bytes, at: int) -> int:
        at = _match(SPACE, piece, at)
        if at == len(piece):
            return at
        if piece[at] == QUOTE:
            self._key = b""
            return self._enter(DocumentNames._in_key, at + 1)
        return self._close(at + 1) if piece[at] == CLOSE else self._enter(DocumentNames._rest, at)

    def _in_key(self, piece: bytes, at: int) -> int:
        end = self._string_end(piece, at)
        if len(self._key) <= KEY_BYTES:
            self._key += piece[at : min(end, at + KEY_BYTES + 1)]
        return self._enter(DocumentNames._before_colon, end + 1) if end < len(piece) else end

    def _before_colon(self, piece: bytes, at: int) -> int:
        at = _match(SPACE, piece, at)
        if at == len(piece):
            return at
        return self._enter(DocumentNames._before_value if piece[at] == COLON else DocumentNames._rest, at + 1)

    def _before_value(self, piece: bytes, at: int) -> int:
        at = _match(SPACE, piece, at)
        if at == len(piece):
            return at
        first = piece[at]
        if first == QUOTE:
            if spells(b"model", self._key):
                self._pieces.append(piece[self._copied : at])
                self._copied = at + 1
                self._held = b'"'
                return self._enter(DocumentNames._in_name, at + 1)
            return self._enter(DocumentNames._in_string, at + 1)
        if first in (OPEN, OPEN_LIST):
            self._depth += 1
            if first == OPEN and self._depth == 2 and any(spells(key, self._key) for key in self._nested):
                self._live = 2
                return self._enter(DocumentNames._before_key, at + 1)
            return self._enter(DocumentNames._deep, at + 1)
        return self._enter(DocumentNames._rest if first in b"}],:" else DocumentNames._after_value, at)

    def _in_string(self, piece: bytes, at: int) -> int:
        end = self._string_end(piece, at)
        return self._enter(DocumentNames._after_value, end + 1) if end < len(piece) else end

    def _in_name(self, piece: bytes, at: int) -> int:
        end = self._string_end(piece, at)
        self._copied = min(end + 1, len(piece))
        held, self._held = self._held + piece[at : self._copied], b""
        if end < len(piece):
            self._pieces.append(self._client if self._is_engine(held) else held)
            return self._enter(DocumentNames._after_value, end + 1)
        if len(held) > self._longest:
            self._pieces.append(held)
            return self._enter(DocumentNames._in_string, end)
        self._held = held
        return end

    def _after_value(self, piece: bytes, at: int) -> int:
        at = _match(SCALAR, piece, at)
        if at == len(piece):
            return at
        if piece[at] == COMMA:
            return self._enter(DocumentNames._before_key, at + 1)
        return self._close(at + 1) if piece[at] == CLOSE else self._enter(DocumentNames._rest, at)

    def _deep(self, piece: bytes, at: int) -> int:
        at = _match(DEEP, piece, at)
        if at == len(piece):
            return at
        mark = piece[at]
        if mark == QUOTE:
            return self._enter(DocumentNames._in_deep_string, at + 1)
        self._depth += 1 if mark in (OPEN, OPEN_LIST) else -1
        return self._enter(DocumentNames._after_value, at + 1) if self._depth == self._live else at + 1

    def _in_deep_string(self, piece: bytes, at: int) -> int:
        end = self._string_end(piece, at)
        return self._enter(DocumentNames._deep, end + 1) if end < len(piece) else end

    def _enter(self, state: Callable[[DocumentNames, bytes, int], int], at: int) -> int:
        self._state = state
        return at

    def _close(self, at: int) -> int:
        self._depth = self._live = self._depth - 1
        return self._enter(DocumentNames._after_value if self._depth else DocumentNames._rest, at)

    def _string_end(self, piece: bytes, at: int) -> int:
        """Return the position of the quote that ends the string around ``at``; else the length of ``piece``."""
        if self._escaped:
            self._escaped = False
            at += 1
        end = _match(STRING, piece, at)
        if end < len(piece) and piece[end] == BACKSLASH:
            self._escaped = True
            return len(piece)
        return end

    def _is_engine(self, token: bytes) -> bool:
        return token == self._plain or (BACKSLASH in token and decoded(token) == self._engine)


class EventNames:
    """Replaces the name in server-sent events, each a document of one or more lines. Source: the WHATWG's HTML."""

    NESTED = frozenset((b"response", b"message"))

    def __init__(self, engine: str, client: str) -> None:
        self._document = DocumentNames(engine, client, self.NESTED)
        self._field = b""  # the line so far, up to the length of ``data:``
        self._after_return = False

    def feed(self, piece: bytes) -> bytes:
        """Return ``piece`` with the names replaced, after what was kept back."""
        out: list[bytes] = []
        at, size = 0, len(piece)
        while at < size:
            found = LINE_ENDS.search(piece, at)
            end = found.start() if found else size
            if end > at:
                self._after_return = False
                out.append(self._within_line(piece[at:end]))
            if found:
                out += (self._lines_ended(found[0]), found[0])
                end = found.end()
            at = end
        return b"".join(out)

    def end(self) -> bytes:
        """Return what was kept back."""
        return self._document.end()

    def _within_line(self, text: bytes) -> bytes:
        missing = len(DATA) - len(self._field)
        if missing <= 0:
            return self._document.feed(text) if self._field == DATA else text
        self._field += text[:missing]
        if self._field == DATA:
            return text[:missing] + self._document.feed(text[missing:])
        if not DATA.startswith(self._field):
            self._field = self._field.ljust(len(DATA))
        return text

    def _lines_ended(self, marks: bytes) -> bytes:
        """Return what was kept back; any number of empty lines counts as one."""
        kept = self._line_ended(marks[0])
        if len(marks) > 1:
            if marks != b"\r\n":
                self._document.begin()
            self._after_return = marks.endswith(b"\r")
        return kept

    def _line_ended(self, mark: int) -> bytes:
        second, self._after_return = self._after_return and mark == b"\n"[0], mark == b"\r"[0]
        if second:  # the second of two bytes that end one line
            return b""
        field, self._field = self._field, b""
        if field:
            return self._document.line_ended()
        self._document.begin()  # an empty line ends the event
        return b""


def renamer(content_type: str, engine: str, client: str) -> Renamer | None:
    """Return the renamer from ``engine`` to ``client`` for a content type; None for one without names."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return EventNames(engine, client)
    if kind == "application/json" or kind.endswith("+json"):
        return DocumentNames(engine, client)
    return None


def spells(word: bytes, key: bytes) -> bool:
    """Return whether the inside of a JSON string is ``word``, in plain letters or with escapes."""
    return key == word or (BACKSLASH in key and decoded(b'"' + key + b'"') == word.decode())


def decoded(token: bytes) -> str | None:
    """Return the text of a JSON string; None if it is not valid."""
    try:
        return msgspec.json.decode(token, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _match(pattern: re.Pattern[bytes], piece: bytes, at: int) -> int:
    found = pattern.match(piece, at)
    return found.end() if found else at
