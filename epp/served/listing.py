"""What a client of ``/v1/models`` is answered: the models of all endpoints that it may reach, as one list.

A card is an engine's own. Of a model that several endpoints list, fields on which they differ are those of the first,
but for the context length, which is the least (a request may go to any of them), and the weights, which are left out
where they differ. Source: OpenAI's and Anthropic's API references.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from epp.served.card import LEAST, ModelCard

PATH = "/v1/models"
LONGEST_PATH = 4096
"""Characters of a path that is looked at: an id may be escaped throughout."""


class ModelAnswer(NamedTuple):
    """What the picker answers by itself."""

    status: int
    body: bytes


def requested_model(method: str, path: str) -> str | None:
    """The id that a request asks about; empty for the whole list, None for a request that asks for neither."""
    if method != "GET" or len(path) > LONGEST_PATH:
        return None
    if path.endswith(PATH):
        return ""
    before, slash, name = path.partition(f"{PATH}/")
    return unquote(name) or None if slash and "/v1/" not in before else None


def union(lists: Iterable[Sequence[ModelCard]]) -> dict[str, dict[str, object]]:
    """One card for each id, in the order in which they come: base models and adapters mixed as engines list them."""
    cards: dict[str, dict[str, object]] = {}
    own: set[str] = set()
    for listed in lists:
        for card in listed:
            first = cards.get(card.id)
            if first is None:
                cards[card.id] = card.fields
            elif not _alike(first, card.fields):
                if card.id not in own:  # an engine's card is nobody's to change
                    first = cards[card.id] = dict(first)
                    own.add(card.id)
                _narrow(first, card.fields)
    return cards


def openai_list(cards: Mapping[str, Mapping[str, object]]) -> bytes:
    """The list in OpenAI's form."""
    return msgspec.json.encode({"object": "list", "data": list(cards.values())})


def anthropic_list(cards: Mapping[str, Mapping[str, object]]) -> bytes:
    """The list in Anthropic's form, all of it in one page."""
    data = [anthropic_card(name, card) for name, card in cards.items()]
    names = list(cards)
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return msgspec.json.encode({"data": data, "has_more": False, **ends})


def anthropic_card(name: str, card: Mapping[str, object]) -> dict[str, object]:
    """One model in Anthropic's form."""
    created = card.get("created")
    seconds = created if isinstance(created, int) and 0 <= created < 1 << 36 else 0
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": moment}


def _alike(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.get(LEAST) == other.get(LEAST) and one.get("root") == other.get("root")


def _narrow(card: dict[str, object], other: Mapping[str, object]) -> None:
    """Take of ``other`` what a client must know of both."""
    lengths = [length for length in (card.get(LEAST), other.get(LEAST)) if isinstance(length, int)]
    if lengths:
        card[LEAST] = min(lengths)
    if card.get("root") != other.get("root"):
        card.pop("root", None)
