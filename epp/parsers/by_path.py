"""Several parsers as one: each body goes to the parser that knows the path best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from epp.errors import BadRequest
from epp.parsers.base import Parsed, Parser

LONGEST_SHOWN = 200
"""Characters of a path in an error."""


class ByPath:
    """The parser with the longest path that ends the request's reads; of equal ones the first in the list.

    A parser without paths reads what is left; without one, what is left is refused.
    """

    def __init__(self, parsers: Sequence[Parser[Any]]) -> None:
        self.parsers = tuple(parsers)
        self._known = {suffix: parser for parser in reversed(parsers) for suffix in parser.paths}
        self._fallback = next((parser for parser in parsers if not parser.paths), None)
        # Clients choose the paths: as many are remembered as a gateway has, not more.
        self._parser_for = lru_cache(maxsize=256)(self._find)

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """As the parser for ``path`` reads it. Raises: BadRequest."""
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
    """The longest of ``suffixes`` that ends ``path``, if any does."""
    return max((suffix for suffix in suffixes if path.endswith(suffix)), key=len, default=None)
