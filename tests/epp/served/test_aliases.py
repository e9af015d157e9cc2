"""The names of one model that share a prefix."""

from __future__ import annotations

from epp.served.aliases import aliases_of
from epp.served.kind import Kind


def kind(*cards: tuple[str, str | None] | tuple[str, str | None, str]) -> Kind:
    return frozenset((card[0], card[1], card[2] if len(card) > 2 else None) for card in cards)


def test_names_of_one_engines_weights_go_by_the_first_of_them() -> None:
    assert aliases_of([kind(("prod", "/w"), ("llama", "/w"))]) == {"prod": "llama", "llama": "llama"}


def test_a_model_with_one_name_keeps_it() -> None:
    assert aliases_of([kind(("a", "/w")), kind(("b", "/w"))]) == {}


def test_an_adapter_is_never_its_base_model() -> None:
    assert aliases_of([kind(("a", "/w"), ("tuned", "/w", "a"))]) == {}


def test_names_with_unknown_weights_share_nothing() -> None:
    assert aliases_of([kind(("a", None), ("b", None))]) == {}


def test_where_endpoints_disagree_every_name_concerned_is_apart() -> None:
    both, one, other = kind(("a", "/w"), ("b", "/w")), kind(("b", "/w")), kind(("c", "/w"), ("d", "/w"))
    assert aliases_of([both, one, other]) == {"c": "c", "d": "c"}
    assert aliases_of([other, one, both]) == {"c": "c", "d": "c"}
    assert aliases_of([both, kind(("a", "/x"), ("b", "/y"))]) == {}
