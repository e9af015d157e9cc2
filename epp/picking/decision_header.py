"""``x-tierwise-decision``: a client asks with this header why its request went where it did, and is told in the same
header of the response. Only where the operator allows it: it names endpoints, their loads, and what they hold.

What it takes does not grow with the fleet: plugins are asked about the candidates that are shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from epp.picking.decision_log import modes_by_tier, tokens_by_tier
from epp.picking.profile import Profile, Schedule
from epp.picking.reason import why
from scorers.base import Candidate, Detail, Mode, Request

HEADER = "x-tierwise-decision"
NO = frozenset({"", "0", "false", "no"})
SHOWN = 8
"""Candidates that are told of, the chosen ones first: headers are bounded (Envoy: 60 KiB of them all)."""
MOST_CHARACTERS = 8192
MOST_OF_REASON = 1024


def asks(headers: Mapping[str, str]) -> bool:
    """Whether a request wants to be told."""
    said = headers.get(HEADER)
    return said is not None and said.strip().lower() not in NO


def answer(profile: Profile, request: Request, schedule: Schedule) -> dict[str, str]:
    """The header, where the request asks for it. Before the pick is recorded."""
    if not asks(request.headers):
        return {}
    shown = best_of(schedule)
    details = profile.details(request, [schedule.candidates[i] for i in shown])
    reason = why(schedule, profile.picker, [said[0] for said in details.values()])
    return {HEADER: told(request, schedule, shown, details, reason)}


def best_of(schedule: Schedule) -> list[int]:
    """Positions of the candidates that are shown: the chosen ones in their order, then by total."""
    places = {candidate.slot: place for place, candidate in enumerate(schedule.chosen, 1)}
    order = sorted(
        range(len(schedule.candidates)),
        key=lambda i: (places.get(schedule.candidates[i].slot, len(places) + 1), -schedule.totals[i]),
    )
    return order[:SHOWN]


def told(
    request: Request, schedule: Schedule, shown: Sequence[int], details: Mapping[str, Sequence[Detail]], reason: str
) -> str:
    """The decision as one line of JSON, in ASCII; ``details`` are about those ``shown``. Of more than fits, the last
    candidates are left out, and counted."""
    rows = [_row(request, schedule, i, [said[n] for said in details.values()]) for n, i in enumerate(shown)]
    pick, *fallbacks = [candidate.address for candidate in schedule.chosen[: 1 + SHOWN]]
    while True:
        answer = {
            "endpoint": pick,
            "fallbacks": fallbacks,
            "reason": reason[:MOST_OF_REASON],
            "prompt_tokens": request.prompt_tokens,
            "candidates": rows,
            "others": len(schedule.candidates) - len(rows),
        }
        text = json.dumps(answer, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS or not rows:
            return text
        rows = rows[:-1]


def _row(request: Request, schedule: Schedule, i: int, details: Sequence[Detail]) -> dict[str, object]:
    candidate = schedule.candidates[i]
    row: dict[str, object] = {
        "endpoint": candidate.address,
        "tokens": tokens_by_tier(request, candidate),
        **_known_better(request, candidate),
        "total": round(schedule.totals[i], 4),
        "scores": {name: [round(column[i], 4), weight] for name, (weight, column) in schedule.scores.items()},
    }
    for said in details:
        row["why"] = said.text
        row["numbers"] = {name: round(number, 6) for name, number in said.numbers.items()}
    return row


def _known_better(request: Request, candidate: Candidate) -> dict[str, object]:
    """How tokens are known, where that is no guess from our own picks."""
    modes = {t: mode for t, mode in modes_by_tier(request, candidate).items() if mode != Mode.APPROXIMATE.value}
    return {"known": modes} if modes else {}
