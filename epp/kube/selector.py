"""Label selectors, checked before they are sent, so that an error has a position and is not a 400 later.

Source: "Labels and Selectors" in the Kubernetes documentation; labels.Parse in k8s.io/apimachinery 0.35.
"""

from __future__ import annotations

import re

from epp.errors import ConfigError

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}(?![A-Za-z0-9._/-])")
_VALUE = re.compile(rf"(?:{_NAME})?(?![A-Za-z0-9._/-])")
_BLANK = re.compile(r"\s*")
_SET = re.compile(r"(notin|in)(?![A-Za-z0-9._/-])")
_EQUAL = re.compile(r"==|!=|=")


def checked(text: str) -> str:
    """Return ``text`` if it is a label selector that selects by at least one label: ``a=b,c in (d,e),!f,g``.

    Raises: ConfigError, which shows the position of the error; for an empty selector too, since it selects every pod.
    """
    reader = _Reader(text)
    if reader.at_end():
        raise ConfigError("the selector is empty and selects every pod; write a label, such as app=vllm")
    reader.requirement()
    while not reader.at_end():
        reader.expect(",", "a comma between two requirements")
        reader.requirement()
    return text.strip()


class _Reader:
    """Reads a selector from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def at_end(self) -> bool:
        self._skip_blanks()
        return self._at == len(self._text)

    def requirement(self) -> None:
        """Read ``!key``, ``key``, ``key = value`` or ``key in (values)``. Raises: ConfigError."""
        if self._found("!"):
            self._take(_KEY, "a label's name after !")
            return
        self._take(_KEY, "a label's name")
        self._skip_blanks()
        if self._match(_SET):
            self.expect("(", "an opening parenthesis")
            self._take(_VALUE, "a value")
            while self._found(","):
                self._take(_VALUE, "a value")
            self.expect(")", "a closing parenthesis, or a comma and a value")
        elif self._match(_EQUAL):
            self._take(_VALUE, "a value of at most 63 letters, digits, '-', '_' and '.'")

    def expect(self, sign: str, what: str) -> None:
        if not self._found(sign):
            self._fail(what)

    def _found(self, sign: str) -> bool:
        self._skip_blanks()
        found = self._text.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _take(self, pattern: re.Pattern[str], what: str) -> None:
        self._skip_blanks()
        if not self._match(pattern):
            self._fail(what)

    def _match(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match is not None

    def _skip_blanks(self) -> None:
        self._match(_BLANK)

    def _fail(self, what: str) -> None:
        shown = self._text[max(0, self._at - 20) : self._at] + " >>> " + self._text[self._at : self._at + 20]
        raise ConfigError(f"{self._text!r}: {what} is missing at character {self._at + 1}: {shown.strip()}")
