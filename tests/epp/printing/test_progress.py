"""Lines of progress if there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from epp.printing.progress import LINE_EVERY_S, Progress


def test_what_is_piped_gets_a_line_every_few_seconds_and_those_that_are_said() -> None:
    now = [100.0]
    out = io.StringIO()
    console = Console(file=out, width=80)
    with Progress("simulating", 1200, "requests", console, lambda: now[0]) as progress:
        for n in range(100):
            progress.advance(12, f"run {n // 50}")
            now[0] += LINE_EVERY_S / 25
        progress.say("round 1: a sentence")
    assert out.getvalue().splitlines() == [
        "simulating: 312 of 1,200 requests in 3 s (run 0)",
        "simulating: 612 of 1,200 requests in 6 s (run 1)",
        "simulating: 912 of 1,200 requests in 9 s (run 1)",
        "round 1: a sentence",
    ]


def test_quick_work_is_done_without_a_line() -> None:
    out = io.StringIO()
    with Progress("simulating", 2, "", Console(file=out, width=80), lambda: 1.0) as progress:
        progress.advance(2)
    assert out.getvalue() == ""
