"""``x-tierwise-decision``: a client asks with this header why its request went where it did, and is told in the same
header of the response. Only where the operator allows it: it names endpoints, their loads, and what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from epp.scheduler import Profile, Schedule
from epp.story import tokens_by_tier
from scorers.base import Detail, Request

HEADER = "x-tierwise-decision"
NO = frozenset({"", "0", "false", "no"})
SHOWN = 8
"""Candidates that are told of, the chosen ones first: headers are bounded (Envoy: 60 KiB of them all)."""
MOST_CHARACTERS = 8192


def asks(headers: Mapping[str, str]) -> bool:
    """Whether a request wants to be told."""
    said = headers.get(HEADER)
    return said is not None and said.strip().lower() not in NO


def answer(profile: Profile, request: Request, schedule: Schedule) -> dict[str, str]:
    """The header, where the request asks for it. Before the pick is recorded."""
    if not asks(request.headers):
        return {}
    return {HEADER: told(request, schedule, profile.details(request, schedule.candidates))}


def told(request: Request, schedule: Schedule, details: Mapping[str, Sequence[Detail]]) -> str:
    """The decision as one line of JSON, in ASCII. Of more candidates than fit, the last are left out and counted."""
    places = {candidate.slot: place for place, candidate in enumerate(schedule.chosen, 1)}
    order = sorted(
        range(len(schedule.candidates)),
        key=lambda i: (places.get(schedule.candidates[i].slot, len(places) + 1), -schedule.totals[i]),
    )
    rows = []
    for i in order[:SHOWN]:
        candidate = schedule.candidates[i]
        row: dict[str, object] = {
            "endpoint": candidate.address,
            "tokens": tokens_by_tier(request, candidate),
            "total": round(schedule.totals[i], 4),
            "scores": {name: [round(column[i], 4), weight] for name, (weight, column) in schedule.scores.items()},
        }
        for said in details.values():
            row["why"] = said[i].text
            row["numbers"] = {name: round(number, 6) for name, number in said[i].numbers.items()}
        rows.append(row)
    while True:
        answer = {
            "endpoint": schedule.chosen[0].address,
            "fallbacks": [candidate.address for candidate in schedule.chosen[1:]],
            "prompt_tokens": request.prompt_tokens,
            "candidates": rows,
            "others": len(order) - len(rows),
        }
        text = json.dumps(answer, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS or not rows:
            return text
        rows = rows[:-1]
