"""``x-tierwise-decision``: with this header a client asks for the reasons of its pick, and the response's has them.

The operator must allow it, since the answer contains endpoints, their loads, and the prefixes that they hold. Its cost
does not grow with the fleet: plugins explain only the candidates that are shown.
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
"""The number of candidates in the answer, the chosen ones first: headers are limited (Envoy: 60 KiB together)."""
MOST_CHARACTERS = 8192
MOST_OF_REASON = 1024


def asks(headers: Mapping[str, str]) -> bool:
    """Return whether a request asks for the reasons of its pick."""
    value = headers.get(HEADER)
    return value is not None and value.strip().lower() not in NO


def answer(profile: Profile, request: Request, schedule: Schedule) -> dict[str, str]:
    """Return the header for the response; empty if the request does not ask. Called before the pick is recorded."""
    if not asks(request.headers):
        return {}
    shown = best_of(schedule)
    details = profile.details(request, [schedule.candidates[i] for i in shown])
    reason = why(schedule, profile.picker, [of_each[0] for of_each in details.values()])
    return {HEADER: as_json(request, schedule, shown, details, reason)}


def best_of(schedule: Schedule) -> list[int]:
    """Return the positions of the candidates to show: the chosen ones in their order, then by total."""
    places = {candidate.slot: place for place, candidate in enumerate(schedule.chosen, 1)}
    order = sorted(
        range(len(schedule.candidates)),
        key=lambda i: (places.get(schedule.candidates[i].slot, len(places) + 1), -schedule.totals[i]),
    )
    return order[:SHOWN]


def as_json(
    request: Request, schedule: Schedule, shown: Sequence[int], details: Mapping[str, Sequence[Detail]], reason: str
) -> str:
    """Return the decision as one line of JSON, in ASCII; ``details`` are about the candidates ``shown``.

    If the line is too long, the last candidates are left out, and counted in ``others``.
    """
    rows = [_row(request, schedule, i, [of_each[n] for of_each in details.values()]) for n, i in enumerate(shown)]
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
    for detail in details:
        row["why"] = detail.text
        row["numbers"] = {name: round(number, 6) for name, number in detail.numbers.items()}
    return row


def _known_better(request: Request, candidate: Candidate) -> dict[str, object]:
    """Return the mode of each tier that is known better than from the picker's own picks."""
    modes = {t: mode for t, mode in modes_by_tier(request, candidate).items() if mode != Mode.APPROXIMATE.value}
    return {"known": modes} if modes else {}
