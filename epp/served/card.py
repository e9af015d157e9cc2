"""Decodes the list of models of an engine's ``/v1/models``.

Source: OpenAI's API reference; vLLM 0.32's ``ModelCard``, SGLang's alike.
"""

from __future__ import annotations

import msgspec

from epp.scrape.reading.error import ScrapeError

MAX_LIST_BYTES = 1 << 20
"""Maximum size of a list, since decoding it blocks all requests. A card of vLLM has about 500 bytes."""
MAX_CARDS = 2048
LEAST = "max_model_len"
"""The field with the context length. Of several cards of a model, clients get the smallest."""
LONGEST_ID = 1024
"""Maximum number of characters of an id, as of a request's model (``epp.parsers.json_body``)."""


class ModelCard(msgspec.Struct, frozen=True):
    """The description of one model or adapter by its engine."""

    id: str
    root: str | None
    """The weights, as a name or a path on the engine's machine; None if the engine does not report them."""
    parent: str | None
    """The base model of an adapter; None for a base model."""
    fields: dict[str, object]
    """The whole card. It must not be changed."""

    @property
    def shown_fields(self) -> tuple[object, ...]:
        """The fields that matter to clients; engines change others, such as the time, with each response."""
        return (self.id, self.root, self.parent, self.fields.get(LEAST))


class _Listed(msgspec.Struct):
    data: list[dict[str, object]]


_LIST = msgspec.json.Decoder(_Listed)


def read_cards(page: bytes) -> tuple[ModelCard, ...]:
    """Return the cards of a list in its order, one for each id. Raises: ScrapeError for an invalid list."""
    if len(page) > MAX_LIST_BYTES:
        raise ScrapeError(f"the list of models has {len(page)} bytes, and {MAX_LIST_BYTES} are read")
    try:
        listed = _LIST.decode(page).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScrapeError(f"the answer is not a list of models: {error}") from error
    if len(listed) > MAX_CARDS:
        raise ScrapeError(f"the list has {len(listed)} models, and {MAX_CARDS} are read")
    cards: dict[str, ModelCard] = {}
    for fields in listed:
        name = fields.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID:
            raise ScrapeError(f"the list names a model {str(name)[:80]!r}; an id has 1 to {LONGEST_ID} characters")
        cards.setdefault(name, ModelCard(name, _text(fields.get("root")), _text(fields.get("parent")), fields))
    return tuple(cards.values())


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
