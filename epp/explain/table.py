"""Answers of the debug port for people: a table if it fits, else a list with one line for each score.

Numbers are never cut: a table that is wider than the console becomes a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from epp.explain.explanation import Considered, Explanation
from epp.explain.pool_state import APPROXIMATE, KNOWN, Doubted, EndpointState, Held, PoolState
from epp.printing.prose import Prose
from epp.printing.sheet import Sheet

EXACT = ("tokenized", "sent_as_tokens")
"""The results of tokenizing for which the number of tokens is exact."""
_LOADS = ("queue", "run", "kv", "ours")
_LOADS_MEAN = (
    "queue, run: requests that wait and run there; kv: share of GPU memory for KV in use; ours: requests from "
    "this picker"
)
_MARKS_MEAN = (
    "→: the pick; 2.: the next one; tokens: of this prompt, held there, p as the engine says, h by its horizon"
)


def of_explanation(explanation: Explanation) -> Iterator[RenderableType]:
    """Yield the candidates with tokens and scores, and then the sentences, each on its own lines."""
    asked = explanation.request
    if asked is not None:
        model = asked.model if asked.model == asked.target_model else f"{asked.model} as {asked.target_model}"
        about = "" if asked.token_ids in EXACT else "about "
        why = "" if asked.token_ids is None or asked.token_ids in EXACT else f" (token ids: {asked.token_ids})"
        tokens = f"{asked.prompt_tokens:,} prompt token{'s' * (asked.prompt_tokens != 1)}"
        yield Prose(f"{asked.path}, model {model or '(none)'}, {about}{tokens}{why}")
    if explanation.candidates:
        yield _scores(explanation.candidates)
        yield Prose(f"({_MARKS_MEAN}; {_LOADS_MEAN})", "dim")
    for row in explanation.candidates:
        for detail in row.details.values():
            yield Prose(f"{detail.text}.")
    for verdict in explanation.filters:
        dropped = f", drops {', '.join(verdict.dropped)}" if verdict.dropped else ""
        yield Prose(f"filter {verdict.name}: keeps {verdict.kept} of {verdict.seen}{dropped}.")
    for name in explanation.failed_plugins:
        yield Prose(f"plugin {name} failed and was skipped; the picker's log has no more of it, as this was a trial.")
    yield Prose(explanation.reason)
    if explanation.refusal is not None:
        yield Prose(f"A client would get status {explanation.refusal.status} {explanation.refusal.code}.")


def of_pool(state: PoolState[Doubted]) -> Iterator[RenderableType]:
    """Yield one line per endpoint, or several if one is too narrow."""
    yield Prose(f"endpoints: {len(state.endpoints)}, requests in flight: {state.in_flight}")
    if not state.endpoints:
        return
    yield _endpoints(state)
    yield Prose(
        f"({_LOADS_MEAN}, tokens ours: what is to be computed for them; producers: what is believed to be cached, "
        "of each tier's capacity)",
        "dim",
    )
    for endpoint in state.endpoints:
        if endpoint.scrape is not None and endpoint.scrape.error:
            yield Prose(f"{endpoint.address}: {endpoint.scrape.error}")
        if endpoint.kv_events is not None and endpoint.kv_events.state != KNOWN:
            publishers = " and ".join(endpoint.kv_events.publishers) or "an unknown port"
            yield Prose(f"{endpoint.address}: KV events from {publishers}: {endpoint.kv_events.state}.")
        if endpoint.engine.doubted:
            yield Prose(f"{endpoint.address}: its page says {' and '.join(endpoint.engine.doubted)}: not believed.")


def _named(rows: Iterable[Considered | EndpointState[Doubted]]) -> bool:
    """Return whether any row has a name that differs from its address."""
    return any(row.name and row.name != row.address for row in rows)


def _scores(rows: tuple[Considered, ...]) -> Sheet:
    tiers = list(dict.fromkeys(tier for row in rows for tier in row.tokens_by_tier))
    scorers = list(dict.fromkeys(name for row in rows for name in row.scores))
    weights = {name: next(row.scores[name].weight for row in rows if name in row.scores) for name in scorers}
    names = ("name",) if _named(rows) else ()
    titles = (
        "", "endpoint", *names, *_LOADS, *(f"{tier} tokens" for tier in tiers),
        *(f"{name} ×{weights[name]:g}" for name in scorers), "total",
    )  # fmt: skip
    sheet = Sheet("", *titles, texts=("endpoint", *names), otherwise=tuple(_listed(rows)))
    for row in rows:
        sheet.add(*_cells(row, tiers, scorers, names), style=_style(row))
    return sheet


def _listed(rows: tuple[Considered, ...]) -> Iterator[Text]:
    """Yield a block of lines for each candidate, with one line for each scorer."""
    for row in rows:
        outcome = f"left out by {row.dropped_by}" if row.dropped_by else f"total {row.total or 0.0:.3f}"
        yield Text(f"{_place(row):<3} {row.address}{_called(row)}{_stale(row)}  {outcome}", style=_style(row))
        loads = zip(_LOADS, (row.waiting, row.running, f"{row.kv_usage:.0%}", row.in_flight), strict=True)
        yield Text("    " + ", ".join(f"{title} {load}" for title, load in loads))
        if row.tokens_by_tier:
            yield Text("    tokens: " + ", ".join(_held(row, tier) for tier in row.tokens_by_tier))
        scores = [(n, f"{p.value:.3f} × {p.weight:g} = {p.product:.3f}") for n, p in row.scores.items()]
        yield from _columns(scores)


def _endpoints(state: PoolState[Doubted]) -> Sheet:
    held = list(dict.fromkeys(name for endpoint in state.endpoints for name in endpoint.index))
    names = ("name",) if _named(state.endpoints) else ()
    titles = ("endpoint", *names, *_LOADS, "tokens ours", *held, "scraped")
    sheet = Sheet("", *titles, texts=("endpoint", *names))
    for endpoint in state.endpoints:
        seen = endpoint.decision
        loads = (f"{seen.waiting}", f"{seen.running}", f"{seen.kv_usage:.0%}", f"{endpoint.in_flight}")
        name = (endpoint.name,) if names else ()
        tiers = (endpoint.index.get(producer) for producer in held)
        sheet.add(
            endpoint.address, *name, *loads, f"{endpoint.in_flight_tokens:,}",
            *("" if tier is None else f"{tier.used_tokens:,} of {tier.capacity_tokens:,}{_by(tier)}" for tier in tiers),
            f"{endpoint.scrape.age_s:.1f} s ago" if endpoint.scrape else "never",
        )  # fmt: skip
    return sheet


def _by(tier: Held) -> str:
    return "" if tier.mode == APPROXIMATE else f" ({tier.mode})"


def _columns(pairs: list[tuple[str, str]]) -> Iterator[Text]:
    longest = max((len(name) for name, _ in pairs), default=0)
    return (Text(f"    {name:<{longest}}  {value}") for name, value in pairs)


def _cells(row: Considered, tiers: list[str], scorers: list[str], names: tuple[str, ...]) -> Iterator[str]:
    yield _place(row)
    yield row.address + _stale(row)
    if names:
        yield row.name
    yield from (f"{row.waiting}", f"{row.running}", f"{row.kv_usage:.0%}", f"{row.in_flight}")
    for tier in tiers:
        mode = row.modes_by_tier.get(tier, APPROXIMATE)
        yield f"{row.tokens_by_tier.get(tier, 0):,}" + ("" if mode == APPROXIMATE else f" {mode[0]}")
    for name in scorers:
        part = row.scores.get(name)
        yield "" if part is None else f"{part.value:.3f}"
    yield row.dropped_by if row.dropped_by else f"{row.total or 0.0:.3f}"


def _place(row: Considered) -> str:
    return "→" if row.pick == 1 else f"{row.pick}." if row.pick else ""


def _stale(row: Considered) -> str:
    return "" if row.fresh else " (stale)"


def _called(row: Considered) -> str:
    return f" ({row.name})" if row.name and row.name != row.address else ""


def _style(row: Considered) -> str:
    return "bold" if row.pick == 1 else "dim" if row.dropped_by else ""


def _held(row: Considered, tier: str) -> str:
    """Format the tokens in one tier, and how they are known if not by approximation."""
    mode = row.modes_by_tier.get(tier, APPROXIMATE)
    return f"{tier} {row.tokens_by_tier[tier]:,}" + ("" if mode == APPROXIMATE else f" ({mode})")
