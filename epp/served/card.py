"""What an engine's ``/v1/models`` lists. Source: OpenAI's API reference; vLLM 0.32's ``ModelCard``, SGLang's alike."""

from __future__ import annotations

import msgspec

from epp.scrape.reading.error import ScrapeError

MAX_LIST_BYTES = 1 << 20
"""Of a list that is read: decoding it holds up every request. A card of vLLM has about 500 bytes."""
MAX_CARDS = 2048
LEAST = "max_model_len"
"""The context length: of several cards of a model, clients are told the least."""
LONGEST_ID = 1024
"""Characters. As many as a request may name (``epp.parsers.json_body``)."""


class ModelCard(msgspec.Struct, frozen=True):
    """One model or adapter, as its engine describes it."""

    id: str
    root: str | None
    """The weights, where the engine says: a name or a path on its machine."""
    parent: str | None
    """The base model of an adapter; None for a base model."""
    fields: dict[str, object]
    """The whole card. Nobody changes it."""

    @property
    def shown_fields(self) -> tuple[object, ...]:
        """What matters to clients, of fields that engines make up anew with every answer."""
        return (self.id, self.root, self.parent, self.fields.get(LEAST))


class _Listed(msgspec.Struct):
    data: list[dict[str, object]]


_LIST = msgspec.json.Decoder(_Listed)


def read_cards(page: bytes) -> tuple[ModelCard, ...]:
    """The cards of a list, one for each id, in its order. Raises: ScrapeError for what is no such list."""
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
