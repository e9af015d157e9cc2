"""Answers for people, in terminals of any width and in pipes."""

from __future__ import annotations

import io
from collections.abc import Iterable

import msgspec
import pytest
from rich.console import Console, RenderableType

from epp.explain import table
from epp.explain.explanation import Considered, Explanation, FilterVerdict, Part, Refusal
from epp.explain.pool_state import Doubted, EndpointState, Held, Load, PoolState
from epp.printing.prose import show

SCORERS = [f"scorer-with-a-long-name-{i}" for i in range(7)]
VALUES = {"queue-scorer": 0.123, "kv-cache-utilization-scorer": 0.456} | dict.fromkeys(SCORERS, 0.789)
REASON = "10.0.0.1:18400 is the only candidate."


def row(address: str, **more: object) -> Considered:
    return Considered(
        address=address, name="", waiting=17, running=250, kv_usage=0.93, in_flight=1234, in_flight_tokens=0,
        fresh=True, tokens_by_tier={"gpu": 123_456, "cpu": 7_654_321}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def explained() -> Explanation:
    scores = {name: Part(value, 2.0, 2 * value) for name, value in VALUES.items()}
    return Explanation(
        reason=REASON,
        refusal=Refusal(503, "ServiceUnavailable", "no"),
        candidates=(row("10.0.0.1:18400", scores=scores, total=12.345, pick=1), row("10.0.0.2:18400", dropped_by="f")),
        filters=(FilterVerdict("f", "f", 2, 1, ("10.0.0.2:18400",)),),
    )


def printed(parts: Iterable[RenderableType], width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    show(console, parts)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 400, 1000])
def test_no_number_and_no_name_is_cut_in_any_width(width: int) -> None:
    text = printed(table.of_explanation(explained()), width)
    assert "…" not in text
    words = text.replace(",\n", "\n").split()
    whole = ("10.0.0.1:18400", "123,456", "7,654,321", "12.345", "0.123", "0.456", "0.789", "1234")
    assert all(any(word.rstrip(",") == number for word in words) for number in whole)
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_table_that_does_not_fit_becomes_a_line_for_each_scorer_and_candidate() -> None:
    lines = printed(table.of_explanation(explained()), 80).splitlines()
    assert lines[:5] == [
        "→   10.0.0.1:18400  total 12.345",
        "    queue 17, run 250, kv 93%, ours 1234",
        "    tokens: gpu 123,456, cpu 7,654,321",
        "    queue-scorer                 0.123 × 2 = 0.246",
        "    kv-cache-utilization-scorer  0.456 × 2 = 0.912",
    ]
    assert "    10.0.0.2:18400  left out by f" in lines


@pytest.mark.parametrize("width", [80, 1000])
def test_each_sentence_is_on_lines_of_its_own_and_ends_with_a_full_stop(width: int) -> None:
    assert printed(table.of_explanation(explained()), width).splitlines()[-3:] == [
        "filter f: keeps 1 of 2, drops 10.0.0.2:18400.",
        REASON,
        "A client would get status 503 ServiceUnavailable.",
    ]


@pytest.mark.parametrize("width", [50, 80, 200])
def test_the_endpoints_numbers_are_whole_in_any_width(width: int) -> None:
    held = {"gpu-prefix-cache-producer (gpu)": Held(14_832, 9_088), "cpu-producer (cpu)": Held(656_000, 7_552)}
    endpoint = EndpointState(
        address="10.0.0.1:18400", name="", labels={}, fresh=True, in_flight=1, in_flight_tokens=1_400,
        decision=Load(3, 4, 0.5), engine=Doubted(), index=held, scrape=None,
    )  # fmt: skip
    text = printed(table.of_pool(PoolState("epp", 5, (endpoint,))), width)
    assert "…" not in text
    text = " ".join(text.split())
    for whole in ("10.0.0.1:18400", "9,088 of 14,832", "7,552 of 656,000", "1,400", "50%"):
        assert whole in text


def test_tokens_that_are_known_better_than_by_a_guess_say_so() -> None:
    known = row("10.0.0.1:18400", total=1.0, pick=1, modes_by_tier={"gpu": "precise", "cpu": "horizon"})
    said = Explanation(reason=REASON, candidates=(known,))
    assert "tokens: gpu 123,456 (precise), cpu 7,654,321 (horizon)" in printed(table.of_explanation(said), 60)
    assert "123,456 p  7,654,321 h" in printed(table.of_explanation(said), 400)


def test_endpoints_that_have_names_are_shown_with_them() -> None:
    named = EndpointState(
        address="10.0.0.1:18400", name="prod/llama-0", labels={}, fresh=True, in_flight=0, in_flight_tokens=0,
        decision=Load(0, 0, 0.0), engine=Doubted(), index={}, scrape=None,
    )  # fmt: skip
    lines = printed(table.of_pool(PoolState("epp", 0, (named,))), 80).splitlines()
    assert lines[1].split()[:2] == ["endpoint", "name"]
    assert lines[2].split()[:2] == ["10.0.0.1:18400", "prod/llama-0"]
    said = Explanation(reason=REASON, candidates=(msgspec.structs.replace(row("10.0.0.1:18400"), name="prod/llama-0"),))
    for width in (40, 200):
        assert "prod/llama-0" in printed(table.of_explanation(said), width)
