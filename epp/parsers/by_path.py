"""Combines several parsers: each body goes to the parser with the best match for its path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from epp.errors import BadRequest
from epp.parsers.base import Parsed, Parser

LONGEST_SHOWN = 200
"""How many characters of a path an error shows."""


class ByPath:
    """Chooses the parser by the longest suffix that matches the path; of equal suffixes the first parser's counts.

    A parser without paths reads the rest. Without such a parser, the rest is refused.
    """

    def __init__(self, parsers: Sequence[Parser[Any]]) -> None:
        self.parsers = tuple(parsers)
        self._known = {suffix: parser for parser in reversed(parsers) for suffix in parser.paths}
        self._fallback = next((parser for parser in parsers if not parser.paths), None)
        # Clients choose the paths, so the cache has only as many entries as a gateway has paths.
        self._parser_for = lru_cache(maxsize=256)(self._find)

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Return what the parser for ``path`` returns. Raises: BadRequest."""
        return self._parser_for(path).parse(path, body, target_model)

    def _find(self, path: str) -> Parser[Any]:
        suffix = longest_suffix(path, self._known)
        parser = self._known[suffix] if suffix is not None else self._fallback
        if parser is None:
            raise BadRequest(
                f"no parser for path {path[:LONGEST_SHOWN]!r}; read are paths that end in {', '.join(self._known)}"
            )
        return parser


def longest_suffix(path: str, suffixes: Iterable[str]) -> str | None:
    """Return the longest of ``suffixes`` that ``path`` ends with, or None."""
    return max((suffix for suffix in suffixes if path.endswith(suffix)), key=len, default=None)
