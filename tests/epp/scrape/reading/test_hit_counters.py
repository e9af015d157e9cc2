"""Predicted cache hits beside the engines' own counters, by endpoint and tier."""

from __future__ import annotations

import pytest

from epp.config.defaults import default_config
from epp.config.wiring.build import build
from epp.decision import RequestHead
from epp.pool.pool import Endpoint, Pool
from epp.scrape.reading.hit_counters import EVERY_S, Balance
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Slot, Tier

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Picker:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.balance = Balance(lambda: self.now_s)
        self.pool = Pool()
        self.pool.listeners.append(self.balance)
        self.pool.replace([Endpoint(A), Endpoint(B)])

    def read(self, address: str, queries: float | str, gpu: float = 0, cpu: float | None = None) -> None:
        self.now_s += EVERY_S
        page = f'vllm:prefix_cache_queries_total{{engine="0"}} {queries}\nvllm:prefix_cache_hits_total {gpu}\n'
        if cpu is not None:
            page += f"vllm:external_prefix_cache_hits_total {cpu}\n"
        self.balance.page_read(address, page.encode())

    def numbers(self, name: str) -> dict[tuple[str, ...], float]:
        (reading,) = [reading for reading in self.balance.readings() if reading.name == f"tierwise_endpoint_{name}"]
        return dict(reading.samples)


@pytest.fixture
def picker() -> Picker:
    return Picker()


def test_a_token_that_several_tiers_hold_is_the_fastest_ones(picker: Picker) -> None:
    picker.balance.picked(A, 100, {Tier.CPU: 80, Tier.GPU: 30})
    picker.balance.picked(A, 100, {Tier.CPU: 10, Tier.GPU: 30})
    picker.balance.picked(B, 50, {})
    assert picker.numbers("picked_prompt_tokens") == {(A,): 200, (B,): 50}
    assert picker.numbers("predicted_cached_tokens") == {(A, "gpu"): 60, (A, "cpu"): 50}


def test_an_engines_counters_count_from_when_they_were_first_read(picker: Picker) -> None:
    picker.read(A, 1000, 500, 7)
    picker.read(A, 1300, 600, 9)
    assert picker.numbers("engine_prompt_tokens") == {(A,): 300}
    assert picker.numbers("engine_cached_tokens") == {(A, "gpu"): 100, (A, "cpu"): 2}


def test_a_counter_that_falls_began_again(picker: Picker) -> None:
    for value in (1000, 1300, 40, 50):
        picker.read(A, value)
    assert picker.numbers("engine_prompt_tokens") == {(A,): 350}


@pytest.mark.parametrize("absurd", ["1e30", "1e300", "nan", "+Inf", "-5"])
def test_a_number_that_no_engine_counts_does_not_stay_in_the_sums(picker: Picker, absurd: str) -> None:
    for value in (1000, 1300, absurd, 1400):
        picker.read(A, value)
    assert picker.numbers("engine_prompt_tokens") == {(A,): 400}


def test_an_engine_without_a_connector_has_no_cpu_tier_to_speak_of(picker: Picker) -> None:
    picker.read(A, 1000)
    assert picker.numbers("engine_cached_tokens") == {(A, "gpu"): 0}


def test_counters_are_looked_at_now_and_then(picker: Picker) -> None:
    picker.read(A, 1000)
    picker.read(A, 1100)
    picker.now_s -= EVERY_S / 2
    picker.balance.page_read(A, b"vllm:prefix_cache_queries_total 9000\n")
    assert picker.numbers("engine_prompt_tokens") == {(A,): 100}


def test_a_page_that_cannot_be_read_changes_nothing(picker: Picker) -> None:
    picker.read(A, 1000)
    for value in ("what", "NaN", "+Inf", -5):
        picker.read(A, value)
    picker.now_s += EVERY_S
    picker.balance.page_read(A, b"")
    picker.read(A, 1100)
    assert picker.numbers("engine_prompt_tokens") == {(A,): 100}


def test_an_endpoint_takes_its_numbers_with_it(picker: Picker) -> None:
    picker.balance.picked(A, 100, {Tier.GPU: 30})
    picker.pool.replace([Endpoint(B)])
    picker.balance.picked(A, 100, {})
    picker.read(A, 5)
    assert picker.numbers("picked_prompt_tokens") == {(B,): 0}
    assert picker.pool.candidates()[0].slot == Slot(1)


def test_a_pickers_decisions_are_counted() -> None:
    core = Core(build(default_config()), Settings())
    core.pool.replace([Endpoint(A)])
    body = b'{"model": "m", "prompt": "' + b"x" * 400 + b'"}'
    core.director.decide(RequestHead({":path": "/v1/completions"}), body)
    (picked, *_) = core.balance.readings()
    assert dict(picked.samples) == {(A,): 100}
