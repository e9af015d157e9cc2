"""The response to ``GET /v1/models``: the models of all endpoints that the client may reach, as one list.

A card is that of an engine. If several endpoints list a model, differing fields are those of the first, except for the
context length, which is the smallest, since a request may go to any of them, and the weights, which are left out if
they differ. Source: OpenAI's and Anthropic's API references.
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
"""Maximum number of characters of a path that is parsed: each character of an id may be escaped."""


class ModelAnswer(NamedTuple):
    """A response that the picker sends by itself."""

    status: int
    body: bytes


def requested_model(method: str, path: str) -> str | None:
    """Return the model id in the path, empty for the whole list, None for a request for neither."""
    if method != "GET" or len(path) > LONGEST_PATH:
        return None
    if path.endswith(PATH):
        return ""
    before, slash, name = path.partition(f"{PATH}/")
    return unquote(name) or None if slash and "/v1/" not in before else None


def union(lists: Iterable[Sequence[ModelCard]]) -> dict[str, dict[str, object]]:
    """Return one card for each id, in the order of ``lists``."""
    cards: dict[str, dict[str, object]] = {}
    own: set[str] = set()
    for listed in lists:
        for card in listed:
            first = cards.get(card.id)
            if first is None:
                cards[card.id] = card.fields
            elif not _alike(first, card.fields):
                if card.id not in own:  # an engine's card must not be changed
                    first = cards[card.id] = dict(first)
                    own.add(card.id)
                _narrow(first, card.fields)
    return cards


def openai_list(cards: Mapping[str, Mapping[str, object]]) -> bytes:
    """Return the list in OpenAI's form."""
    return msgspec.json.encode({"object": "list", "data": list(cards.values())})


def anthropic_list(cards: Mapping[str, Mapping[str, object]]) -> bytes:
    """Return the list in Anthropic's form, as one page."""
    data = [anthropic_card(name, card) for name, card in cards.items()]
    names = list(cards)
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return msgspec.json.encode({"data": data, "has_more": False, **ends})


def anthropic_card(name: str, card: Mapping[str, object]) -> dict[str, object]:
    """Return one model in Anthropic's form."""
    created = card.get("created")
    seconds = created if isinstance(created, int) and 0 <= created < 1 << 36 else 0
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": moment}


def _alike(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.get(LEAST) == other.get(LEAST) and one.get("root") == other.get("root")


def _narrow(card: dict[str, object], other: Mapping[str, object]) -> None:
    """Adapt ``card`` so that it holds for ``other``, too."""
    lengths = [length for length in (card.get(LEAST), other.get(LEAST)) if isinstance(length, int)]
    if lengths:
        card[LEAST] = min(lengths)
    if card.get("root") != other.get("root"):
        card.pop("root", None)
