"""The catalog of the endpoints' models, and what depends on it."""

from __future__ import annotations

import json
import logging
import tracemalloc

import pytest

from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.served.card import ModelCard, read_cards
from epp.served.catalog import Catalog
from scorers.base import LoraState

ONE, TWO = "10.0.0.1:8000", "10.0.0.2:8000"


def cards(*names: str, root: str = "/w") -> tuple[ModelCard, ...]:
    return read_cards(json.dumps({"data": [{"id": name, "root": root} for name in names]}).encode())


class Stage:
    def __init__(self, *addresses: str) -> None:
        self.pool = Pool()
        self.forgotten: list[str] = []
        self.catalog = Catalog(self.pool, lambda candidate: self.forgotten.append(candidate.address))
        self.pool.listeners.append(self.catalog)
        self.pool.replace([Endpoint(address) for address in addresses or (ONE, TWO)])

    def page(self, address: str, *models: str, max_loras: int = 0, at: float = 0.0) -> None:
        candidate = self.pool.candidate(address)
        assert candidate is not None
        engine = EngineMetrics(models=frozenset(models), lora=LoraState(max_loras=max_loras))
        self.pool.observe(candidate.slot, engine, at)

    def serving(self, model: str) -> list[str]:
        slots = self.catalog.served.serving(model)
        return [c.address for c in self.pool.candidates() if slots is None or c.slot in slots]


def test_a_metrics_page_is_believed_until_the_list_is_read() -> None:
    stage = Stage()
    stage.page(ONE, "a")
    assert stage.serving("a") == [ONE, TWO], "the second has not said"
    stage.page(TWO, "b")
    assert (stage.serving("a"), stage.serving("b")) == ([ONE], [TWO])
    stage.catalog.set_list(TWO, cards("b", "a"), complete=True)
    assert stage.serving("a") == [ONE, TWO]


def test_an_endpoint_that_has_no_list_goes_by_its_page_again() -> None:
    stage = Stage()
    stage.page(ONE, "a")
    stage.catalog.set_list(ONE, cards("x"), complete=True)
    stage.catalog.set_list(TWO, cards("y"), complete=True)
    assert stage.serving("a") == []
    stage.catalog.remove_list(ONE)
    assert stage.serving("a") == [ONE]


def test_places_for_adapters_are_read_off_the_page() -> None:
    stage = Stage()
    for address in (ONE, TWO):
        stage.catalog.set_list(address, cards("a"), complete=True)
    assert stage.serving("unlisted") == []
    stage.page(TWO, "a", max_loras=4)
    assert stage.serving("unlisted") == [TWO]


def test_an_endpoint_that_is_removed_and_added_again_has_no_list() -> None:
    stage = Stage()
    for address in (ONE, TWO):
        stage.catalog.set_list(address, cards("a"), complete=True)
    stage.pool.replace([Endpoint(ONE)])
    stage.pool.replace([Endpoint(ONE), Endpoint(TWO)])
    assert stage.serving("b") == [TWO]
    assert stage.catalog.cards(TWO) is None
    stage.catalog.set_list("10.9.9.9:1", cards("z"), complete=True)  # an answer that comes too late


def test_an_endpoint_that_serves_other_weights_than_before_counts_as_empty() -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards("a"), complete=True)
    stage.catalog.set_list(ONE, cards("a"), complete=True)
    assert stage.forgotten == []
    stage.catalog.set_list(ONE, cards("a", root="/other"), complete=True)
    assert stage.forgotten == [ONE]
    stage.catalog.set_list(ONE, cards("b", root="/other"), complete=True)
    assert stage.forgotten == [ONE, ONE]


def test_names_that_have_got_weights_of_their_own_share_nothing_any_more() -> None:
    stage = Stage(ONE)
    stage.catalog.set_list(ONE, cards("a", "alias"), complete=True)
    assert stage.catalog.aliases == {"a": "a", "alias": "a"}
    stage.catalog.set_list(ONE, (*cards("a"), *cards("alias", root="/other")), complete=True)
    assert stage.catalog.aliases == {}


def test_a_page_that_names_the_same_models_makes_nothing_anew() -> None:
    """Engines of several tiers report another eviction horizon with every page."""
    stage = Stage(ONE)
    stage.page(ONE, "m0", max_loras=1, at=1.0)
    stage.catalog.set_list(ONE, cards(*(f"m{n}" for n in range(2000))), complete=True)
    candidate = stage.pool.candidate(ONE)
    assert candidate is not None
    tracemalloc.start()
    stage.catalog.engine_reported(candidate)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000


def test_an_adapter_that_comes_empties_nothing() -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards("a"), complete=True)
    tuned = ModelCard("tuned", "/t", "a", {"id": "tuned"})
    stage.catalog.set_list(ONE, (*cards("a"), tuned), complete=True)
    assert stage.forgotten == []


def test_endpoints_that_differ_are_logged_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    caplog.set_level(logging.INFO)
    stage.catalog.set_list(ONE, cards("a"), complete=True)
    assert not caplog.records
    for _ in range(3):
        stage.catalog.set_list(TWO, cards("b"), complete=True)
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert told == (
        f"the endpoints serve different models: a at {ONE}; b at {TWO}; requests go to any of them, and those for "
        "another model fail: add the plugin served-model-filter"
    )
    caplog.clear()
    stage.catalog.filters = True
    stage.catalog.set_list(TWO, cards("a"), complete=True)
    assert "all endpoints serve the same models again" in [r.getMessage() for r in caplog.records]
    stage.catalog.set_list(TWO, cards("c"), complete=True)
    assert "each request goes to endpoints that serve its model" in caplog.text


def test_an_endpoint_that_names_one_of_the_others_names_is_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards("a", "alias"), complete=True)
    stage.page(TWO, "a")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_the_metrics_count_the_endpoints_of_each_model() -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards("a", "b"), complete=True)
    stage.page(TWO, "a")
    by_name = {reading.name: dict(reading.samples) for reading in stage.catalog.readings()}
    assert by_name["tierwise_served_models"] == {("a",): 2, ("b",): 1}
    assert by_name["tierwise_endpoints_without_model_list"] == {(): 1}


def test_the_metrics_tell_a_bounded_number_of_models_apart() -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards(*(f"m{n}" for n in range(1000))), complete=True)
    (served,) = [r for r in stage.catalog.readings() if r.name == "tierwise_served_models"]
    assert len(list(served.samples)) == 201
    assert dict(served.samples)[("other",)] == 800


def test_the_metrics_show_long_names_shortened_as_those_of_requests_are() -> None:
    stage = Stage()
    stage.catalog.set_list(ONE, cards("m" * 1000 + "1", "m" * 1000 + "2", "two\nlines"), complete=True)
    (served,) = [r for r in stage.catalog.readings() if r.name == "tierwise_served_models"]
    labels = [label for (label,), count in served.samples if count == 1]
    assert len(set(labels)) == 3
    assert all(len(label.encode()) <= 96 and label.isprintable() for label in labels)
