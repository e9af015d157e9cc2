"""A field that holds one prompt or several, as texts or as token ids."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias, cast

from epp.errors import BadRequest
from epp.parsers.canonical import BYTES_PER_TOKEN, Rendered, render_text, render_tokens

Texts: TypeAlias = str | list[str | int | list[int]]
"""One text, several, one prompt's token ids, or several prompts' ids."""


MOST_PROMPTS = 32
"""Prompts of one request that are told apart, matched and recorded, the first; of more, only the tokens count, as new.
Each is a walk, a table of the endpoints and a record in one step of the event loop. Embeddings too: engines cache the
prefixes of models that pool the last token. Source: benchmarks/picker/batch_request.py, CPU of a request of 1,024
prompts that begin alike, before this bound and with it, 2 shared cores, 2026-11-22: 75 and 4 ms at 10 endpoints, 153
and 5 at 100, 903 and 12 at 1,000."""


def render_texts(given: Texts | None, field: str) -> list[Rendered]:
    """The prompts of a field that holds texts or token ids. Raises: BadRequest naming it when it is empty or mixed."""
    if isinstance(given, str) and given:
        return [render_text(given)]
    if not given:
        raise BadRequest(f"`{field}` must hold a text, a list of texts, token ids, or a list of lists of token ids")
    if type(given[0]) is int:  # packing tells by itself whether all are, and at half the price
        with suppress(TypeError):
            return [render_tokens(cast("list[int]", given), field)]
    kinds = set(map(type, given))
    if kinds == {str}:
        texts = cast("list[str]", given)
        # A text has about as many bytes as characters.
        more_tokens = sum(map(len, texts[MOST_PROMPTS:])) // BYTES_PER_TOKEN
        return with_more([render_text(text) for text in texts[:MOST_PROMPTS]], more_tokens)
    if kinds == {list} and all(given):
        lists = cast("list[list[int]]", given)
        more_tokens = sum(map(len, lists[MOST_PROMPTS:]))
        return with_more([render_tokens(ids, field) for ids in lists[:MOST_PROMPTS]], more_tokens)
    raise BadRequest(f"`{field}` mixes texts, token ids and lists, or holds an empty list; send one kind")


def with_more(rendered: list[Rendered], tokens: int) -> list[Rendered]:
    """``rendered``, and ``tokens`` of prompts beyond them."""
    if tokens:
        rendered[-1] = rendered[-1]._replace(more_tokens=tokens)
    return rendered
