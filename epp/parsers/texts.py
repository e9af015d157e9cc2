"""A field that holds one prompt or several, as texts or as token ids."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias, cast

from epp.errors import BadRequest
from epp.parsers.canonical import BYTES_PER_TOKEN, Rendered, render_text, render_tokens

Texts: TypeAlias = str | list[str | int | list[int]]
"""One text, several texts, the token ids of one prompt, or those of several prompts."""


MOST_PROMPTS = 32
"""Maximum number of prompts of one request that are matched and recorded separately, from the first one on. Of further
prompts only the tokens count, as new tokens. Each prompt costs a walk through the index, a table of the endpoints
and a record, in one step of the event loop. Embeddings have the same limit: engines cache the prefixes of models
that pool the last token. Source: benchmarks/picker/batch_request.py, CPU of a request of 1,024 prompts that begin
alike, before this limit and with it, 2 shared cores, 2026-11-22: 75 and 4 ms at 10 endpoints, 153 and 5 at 100, 903
and 12 at 1,000.
"""


def render_texts(given: Texts | None, field: str) -> list[Rendered]:
    """Return the prompts of a field with texts or token ids. Raises: BadRequest naming it if it is empty or mixed."""
    if isinstance(given, str) and given:
        return [render_text(given)]
    if not given:
        raise BadRequest(f"`{field}` must hold a text, a list of texts, token ids, or a list of lists of token ids")
    if type(given[0]) is int:  # packing fails if one is not an int, at half the cost of a check
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
    """Return ``rendered``, with the ``tokens`` of further prompts added to the last one."""
    if tokens:
        rendered[-1] = rendered[-1]._replace(more_tokens=tokens)
    return rendered
