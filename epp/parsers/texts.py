"""A field that holds one prompt or several, as texts or as token ids."""

from __future__ import annotations

from typing import TypeAlias, cast

from epp.errors import BadRequest
from epp.parsers.canonical import Rendered, render_text, render_tokens

Texts: TypeAlias = str | list[str | int | list[int]]
"""One text, several, one prompt's token ids, or several prompts' ids."""


def render_texts(given: Texts | None, field: str) -> list[Rendered]:
    """The prompts of a field that holds texts or token ids. Raises: BadRequest naming it when it is empty or mixed."""
    if isinstance(given, str) and given:
        return [render_text(given)]
    if not given:
        raise BadRequest(f"`{field}` must hold a text, a list of texts, token ids, or a list of lists of token ids")
    kinds = set(map(type, given))
    if kinds == {str}:
        return [render_text(text) for text in cast("list[str]", given)]
    if kinds == {int}:
        return [render_tokens(cast("list[int]", given), field)]
    if kinds == {list} and all(given):
        return [render_tokens(ids, field) for ids in cast("list[list[int]]", given)]
    raise BadRequest(f"`{field}` mixes texts, token ids and lists, or holds an empty list; send one kind")
