"""Explains a decision in one sentence or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epp.picking.profile import Schedule
from scorers.base import Detail, Picker
from scorers.pickers import MaxScorePicker


def why(schedule: Schedule, picker: Picker[Any], details: Sequence[Detail]) -> str:
    """Return what put the pick before the others; ``details`` are the plugins' explanations of the pick."""
    pick, candidates, totals = schedule.chosen[0], schedule.candidates, schedule.totals
    if len(candidates) == 1:
        return f"{pick.address} is the only candidate."
    if not isinstance(picker, MaxScorePicker):
        if details:
            return f"{picker.name} chose {details[0].text}."
        return f"{picker.name} chose {pick.address}: it does not, or not only, go by the highest total."
    place = next(i for i, candidate in enumerate(candidates) if candidate.slot == pick.slot)
    total = totals[place]
    if (equals := totals.count(total)) > 1:
        return (
            f"{equals} of {len(candidates)} candidates share the highest total, {total:.3f}. Of those, the fewest "
            f"requests of ours in flight decide, then the lot: {pick.address} has {pick.in_flight}."
        )
    second = max((i for i in range(len(candidates)) if i != place), key=totals.__getitem__)
    gains = {name: weight * (column[place] - column[second]) for name, (weight, column) in schedule.scores.items()}
    for_it = [f"{name} ({gain:+.3f})" for name, gain in sorted(gains.items(), key=lambda g: -g[1]) if gain > 1e-9]
    against = [f"{name} ({gain:+.3f})" for name, gain in sorted(gains.items(), key=lambda g: g[1]) if gain < -1e-9]
    return (
        f"{pick.address} has the highest total, {total:.3f}; next is {candidates[second].address} with "
        f"{totals[second]:.3f}. For it: {', '.join(for_it) or 'nothing'}. "
        f"Against it: {', '.join(against) or 'nothing'}."
    )
