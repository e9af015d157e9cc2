"""Answers of the debug port for people: a table where it fits, else one line for each number's name.

No number is ever cut: a table that is wider than the terminal becomes a list; without a terminal nothing is too wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from epp.explain.endpoints import KNOWN, EndpointState, Held, PoolState
from epp.explain.explanation import Considered, Explanation
from epp.logs import counted
from scorers.base import Mode

UNLIMITED = 100_000
"""Columns of an output that is no terminal."""
EXACT = ("tokenized", "sent_as_tokens")
"""The results of tokenizing after which tokens are no estimate."""
_LOADS = ("queue", "run", "kv", "ours")
_LOADS_MEAN = (
    "queue, run: requests that wait and run there; kv: share of GPU memory for KV in use; ours: requests from "
    "this picker"
)
_MARKS_MEAN = (
    "→: the pick; 2.: the next one; tokens: of this prompt, held there, p as the engine says, h by its horizon"
)


def of_explanation(explanation: Explanation, width: int = UNLIMITED) -> Iterator[RenderableType]:
    """Candidates by tokens and scores in ``width`` columns, and the sentences; each on lines of its own."""
    asked = explanation.request
    if asked is not None:
        model = asked.model if asked.model == asked.target_model else f"{asked.model} as {asked.target_model}"
        about = "" if asked.token_ids in EXACT else "about "
        why = "" if asked.token_ids is None or asked.token_ids in EXACT else f" (token ids: {asked.token_ids})"
        yield Text(
            f"{asked.path}, model {model or '(none)'}, {about}{counted(asked.prompt_tokens, 'prompt token')}{why}"
        )
    if explanation.candidates:
        table = _scores(explanation.candidates)
        if _width(table) <= width:
            yield table
            yield Text(f"({_MARKS_MEAN}; {_LOADS_MEAN})", style="dim")
        else:
            yield from _listed(explanation.candidates)
    for row in explanation.candidates:
        for detail in row.details.values():
            yield Text(f"{detail.text}.")
    for verdict in explanation.filters:
        dropped = f", drops {', '.join(verdict.dropped)}" if verdict.dropped else ""
        yield Text(f"filter {verdict.name}: keeps {verdict.kept} of {verdict.seen}{dropped}.")
    for name in explanation.failed_plugins:
        yield Text(f"plugin {name} failed and was skipped; the picker's log has no more of it, as this was a trial.")
    yield Text(explanation.reason)
    if explanation.refusal is not None:
        yield Text(f"A client would get status {explanation.refusal.status} {explanation.refusal.code}.")


def of_pool(state: PoolState, width: int = UNLIMITED) -> Iterator[RenderableType]:
    """One line an endpoint, or several where they do not fit into ``width`` columns."""
    yield Text(f"endpoints: {len(state.endpoints)}, requests in flight: {state.in_flight}")
    if not state.endpoints:
        return
    table = _endpoints(state)
    if _width(table) <= width:
        yield table
        yield Text(
            f"({_LOADS_MEAN}, tokens ours: what is to be computed for them; producers: what is believed to be cached, "
            "of each tier's capacity)",
            style="dim",
        )
    else:
        for endpoint in state.endpoints:
            loads, (tokens, *held, scraped) = _loads_of(endpoint), _rest_of(endpoint, list(endpoint.index))
            yield Text(endpoint.address, style="bold")
            yield Text(f"    {loads}, tokens ours {tokens}, scraped {scraped}")
            yield from _columns(list(zip(endpoint.index, held, strict=True)))
    for endpoint in state.endpoints:
        if endpoint.scrape is not None and endpoint.scrape.error:
            yield Text(f"{endpoint.address}: {endpoint.scrape.error}")
        if endpoint.kv_events is not None and endpoint.kv_events.state != KNOWN:
            publishers = " and ".join(endpoint.kv_events.publishers) or "an unknown port"
            yield Text(f"{endpoint.address}: KV events from {publishers}: {endpoint.kv_events.state}.")
        if endpoint.engine.doubted:
            yield Text(f"{endpoint.address}: its page says {' and '.join(endpoint.engine.doubted)}: not believed.")


def _scores(rows: tuple[Considered, ...]) -> Table:
    tiers = list(dict.fromkeys(tier for row in rows for tier in row.tokens_by_tier))
    scorers = list(dict.fromkeys(name for row in rows for name in row.scores))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("endpoint", no_wrap=True)
    for title in (*_LOADS, *(f"{tier} tokens" for tier in tiers)):
        table.add_column(_heading(title, 6), justify="right", no_wrap=True)
    for name in scorers:
        weight = next(row.scores[name].weight for row in rows if name in row.scores)
        table.add_column(_heading(f"{name} ×{weight:g}"), justify="right", no_wrap=True)
    table.add_column("total", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, tiers, scorers), style=_style(row))
    return table


def _listed(rows: tuple[Considered, ...]) -> Iterator[Text]:
    """A block of lines for each candidate, with one for each scorer."""
    for row in rows:
        outcome = f"left out by {row.dropped_by}" if row.dropped_by else f"total {row.total or 0.0:.3f}"
        yield Text(f"{_place(row):<3} {row.address}{_stale(row)}  {outcome}", style=_style(row))
        loads = zip(_LOADS, (row.waiting, row.running, f"{row.kv_usage:.0%}", row.in_flight), strict=True)
        yield Text("    " + ", ".join(f"{title} {load}" for title, load in loads))
        if row.tokens_by_tier:
            yield Text("    tokens: " + ", ".join(_held(row, tier) for tier in row.tokens_by_tier))
        scores = [(n, f"{p.value:.3f} × {p.weight:g} = {p.product:.3f}") for n, p in row.scores.items()]
        yield from _columns(scores)


def _endpoints(state: PoolState) -> Table:
    held = list(dict.fromkeys(name for endpoint in state.endpoints for name in endpoint.index))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("endpoint", no_wrap=True)
    for title in (*_LOADS, "tokens ours", *held, "scraped"):
        table.add_column(_heading(title), justify="right", no_wrap=True)
    for endpoint in state.endpoints:
        table.add_row(escape(endpoint.address), *_loads(endpoint), *_rest_of(endpoint, held))
    return table


def _loads(endpoint: EndpointState) -> tuple[str, ...]:
    seen = endpoint.decision
    return f"{seen.waiting}", f"{seen.running}", f"{seen.kv_usage:.0%}", f"{endpoint.in_flight}"


def _loads_of(endpoint: EndpointState) -> str:
    return ", ".join(f"{title} {load}" for title, load in zip(_LOADS, _loads(endpoint), strict=True))


def _rest_of(endpoint: EndpointState, held: list[str]) -> list[str]:
    tiers = (endpoint.index[name] for name in held)
    return [
        f"{endpoint.in_flight_tokens:,}",
        *(f"{tier.used_tokens:,} of {tier.capacity_tokens:,}{_by(tier)}" for tier in tiers),
        f"{endpoint.scrape.age_s:.1f} s ago" if endpoint.scrape else "never",
    ]


def _by(tier: Held) -> str:
    return "" if tier.mode == Mode.APPROXIMATE.value else f" ({tier.mode})"


def _columns(pairs: list[tuple[str, str]]) -> Iterator[Text]:
    longest = max((len(name) for name, _ in pairs), default=0)
    return (Text(f"    {name:<{longest}}  {value}") for name, value in pairs)


def _width(table: Table) -> int:
    return Console(width=UNLIMITED).measure(table).maximum


def _heading(title: str, width: int = 11) -> str:
    """``title`` in short lines."""
    return escape("\n".join(wrap(title, width)))


def _cells(row: Considered, tiers: list[str], scorers: list[str]) -> Iterator[str]:
    yield _place(row)
    yield escape(row.address) + _stale(row)
    yield from (f"{row.waiting}", f"{row.running}", f"{row.kv_usage:.0%}", f"{row.in_flight}")
    for tier in tiers:
        mode = row.modes_by_tier.get(tier, "approximate")
        yield f"{row.tokens_by_tier.get(tier, 0):,}" + ("" if mode == "approximate" else f" {mode[0]}")
    for name in scorers:
        part = row.scores.get(name)
        yield "" if part is None else f"{part.value:.3f}"
    yield escape(row.dropped_by) if row.dropped_by else f"{row.total or 0.0:.3f}"


def _place(row: Considered) -> str:
    return "→" if row.pick == 1 else f"{row.pick}." if row.pick else ""


def _stale(row: Considered) -> str:
    return "" if row.fresh else " (stale)"


def _style(row: Considered) -> str:
    return "bold" if row.pick == 1 else "dim" if row.dropped_by else ""


def _held(row: Considered, tier: str) -> str:
    """Tokens in one tier, and how that is known where it is better than a guess."""
    mode = row.modes_by_tier.get(tier, "approximate")
    return f"{tier} {row.tokens_by_tier[tier]:,}" + ("" if mode == "approximate" else f" ({mode})")
