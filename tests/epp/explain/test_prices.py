"""Seconds in explanations: those of each candidate, in words and numbers, and the reason for a choice by seconds."""

from __future__ import annotations

import json
from random import Random

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.decision import RequestHead
from epp.explain.explainer import Explainer
from epp.explain.explanation import Explanation
from epp.explain.table import of_explanation
from epp.pool.pool import Endpoint
from epp.printing.prose import Prose
from epp.server.core import Core
from epp.server.settings import Settings

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {type: approx-prefix-cache-producer}\n"
PATH = RequestHead({":path": "/v1/completions"})
BODY = json.dumps({"model": "m", "prompt": "sphinx of black quartz " * 1000}).encode()


def explained(plugins: str) -> tuple[Core, Explanation]:
    """Return the explanation of a second request long after the first, and the picker that gave it."""
    times = iter(range(1, 10_000, 60))
    core = Core(build(load_text(HEAD + plugins), random=Random(1)), Settings(), lambda: float(next(times)))
    core.pool.replace([Endpoint(f"10.0.0.{i}:8000") for i in range(3)])
    core.director.decide(PATH, BODY)
    return core, Explainer(core.director, core.pool, lambda: core.plan).explain(PATH, BODY)


def test_each_candidate_has_its_seconds_by_part_and_a_sentence() -> None:
    core, said = explained("- {type: tier-cost-scorer}\n")
    assert said.pick == core.director.decide(PATH, BODY).chosen[0].address
    best, *others = said.candidates
    assert best.details["tier-cost-producer"].numbers["gpu_tokens"] == best.tokens_by_tier["gpu"] == 5696
    assert best.details["tier-cost-producer"].text.startswith(
        f"{best.address}: holds 5,696 of 5,750 tokens on the GPU; "
    )
    for other in others:
        assert other.details["tier-cost-producer"].text.startswith(f"{other.address}: holds none of 5,750 tokens; ")
    lines = [part.text for part in of_explanation(said) if isinstance(part, Prose)]
    assert [f"{row.details['tier-cost-producer'].text}." for row in said.candidates] == lines[2:5]


def test_a_picker_by_seconds_says_which() -> None:
    _, said = explained("- {type: tier-cost-picker}\n")
    best = next(row for row in said.candidates if row.pick == 1)
    assert said.reason == f"tier-cost-picker chose {best.details['tier-cost-producer'].text}."
    assert "5,696 of 5,750 tokens on the GPU" in said.reason


def test_explaining_teaches_and_counts_nothing() -> None:
    core, _ = explained("- {type: tier-cost-scorer}\n")
    producer = core.plan.profile.producers[-1]
    before = repr(producer.state())
    queues = [(costs.address, costs.queues.gpu_until) for costs in producer.model.endpoints()]  # type: ignore[attr-defined]
    Explainer(core.director, core.pool, lambda: core.plan).explain(PATH, BODY)
    assert repr(producer.state()) == before
    assert [(p.address, p.queues.gpu_until) for p in producer.model.endpoints()] == queues  # type: ignore[attr-defined]
