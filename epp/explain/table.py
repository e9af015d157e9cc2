"""Answers of the debug port as tables."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from epp.explain.endpoints import PoolState
from epp.explain.explanation import Considered, Explanation


def of_explanation(explanation: Explanation) -> Iterator[RenderableType]:
    """Candidates by tokens and scores, and the sentence."""
    asked = explanation.request
    if asked is not None:
        model = asked.model if asked.model == asked.target_model else f"{asked.model} as {asked.target_model}"
        yield Text(f"{asked.path}, model {model or '(none)'}, about {asked.prompt_tokens:,} prompt tokens")
    rows = explanation.candidates
    tiers = list(dict.fromkeys(tier for row in rows for tier in row.tokens_by_tier))
    scorers = list(dict.fromkeys(name for row in rows for name in row.scores))
    if rows:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("endpoint", no_wrap=True)
        for title in ("queue", "run", "kv", "ours", *(f"{tier} tokens" for tier in tiers)):
            table.add_column(_heading(title, 6), justify="right")
        for name in scorers:
            weight = next(row.scores[name].weight for row in rows if name in row.scores)
            table.add_column(_heading(f"{name} ×{weight:g}"), justify="right")
        table.add_column("total", justify="right")
        for row in rows:
            table.add_row(
                *_cells(row, tiers, scorers), style="bold" if row.pick == 1 else "dim" if row.dropped_by else ""
            )
        yield table
    for verdict in explanation.filters:
        dropped = f", drops {', '.join(verdict.dropped)}" if verdict.dropped else ""
        yield Text(f"filter {verdict.name}: keeps {verdict.kept} of {verdict.seen}{dropped}")
    for name in explanation.failed_plugins:
        yield Text(f"plugin {name} failed and was skipped; the picker's log has no more of it, as this was a trial")
    yield Text(explanation.reason)
    if explanation.refusal is not None:
        yield Text(f"A client would get status {explanation.refusal.status} {explanation.refusal.code}.")


def _heading(title: str, width: int = 11) -> str:
    """``title`` in short lines."""
    return escape("\n".join(wrap(title, width)))


def _cells(row: Considered, tiers: list[str], scorers: list[str]) -> Iterator[str]:
    yield "→" if row.pick == 1 else f"{row.pick}." if row.pick else ""
    yield escape(row.address) + ("" if row.fresh else " (stale)")
    yield from (f"{row.waiting}", f"{row.running}", f"{row.kv_usage:.0%}", f"{row.in_flight}")
    yield from (f"{row.tokens_by_tier.get(tier, 0):,}" for tier in tiers)
    for name in scorers:
        part = row.scores.get(name)
        yield "" if part is None else f"{part.value:.3f}"
    yield escape(row.dropped_by) if row.dropped_by else f"{row.total or 0.0:.3f}"


def of_pool(state: PoolState) -> Iterator[RenderableType]:
    """One line an endpoint."""
    yield Text(f"pool {state.pool}, endpoints: {len(state.endpoints)}, requests in flight: {state.in_flight}")
    if not state.endpoints:
        return
    held = list(dict.fromkeys(name for endpoint in state.endpoints for name in endpoint.index))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("endpoint", no_wrap=True)
    for title in ("queue", "run", "kv", "ours", "tokens ours", *held, "scraped"):
        table.add_column(_heading(title), justify="right")
    for endpoint in state.endpoints:
        seen, scrape = endpoint.decision, endpoint.scrape
        table.add_row(
            escape(endpoint.address), f"{seen.waiting}", f"{seen.running}", f"{seen.kv_usage:.0%}",
            f"{endpoint.in_flight}", f"{endpoint.in_flight_tokens:,}",
            *(f"{tier.used_tokens:,} of {tier.capacity_tokens:,}" for tier in (endpoint.index[name] for name in held)),
            f"{scrape.age_s:.1f} s ago" if scrape else "never",
        )  # fmt: skip
    yield table
    for endpoint in state.endpoints:
        if endpoint.scrape is not None and endpoint.scrape.error:
            yield Text(f"{endpoint.address}: {endpoint.scrape.error}")
