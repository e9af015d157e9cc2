"""Whether an object is used, and why not: the condition ``Accepted`` in its status, and the line in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from epp.resources.precedence import Owner

ACCEPTED, PARTLY, CONFLICTED, INVALID, SUPERSEDED = (
    "Accepted",
    "PartlyConflicted",
    "Conflicted",
    "Invalid",
    "Superseded",
)
"""The reasons of a condition, in the form that Kubernetes demands of them."""
_SHOWN = 5
"""The most claims that a message names."""


class Verdict(NamedTuple):
    """What became of one object."""

    accepted: bool
    reason: str
    message: str


def superseded(kind: str, group: str) -> Verdict:
    """Return the verdict on an object of the older group whose name one of the newer ``group`` has."""
    return Verdict(False, SUPERSEDED, f"the {kind} of this name in {group} is used instead; delete one of the two")


def of_objective(owner: Owner, lost: Sequence[tuple[str, Owner | None]]) -> Verdict:
    """Return the verdict on an objective, which can only lose its name to the configuration."""
    if lost:
        return Verdict(False, CONFLICTED, "the picker's configuration has an objective of this name, which comes first")
    return Verdict(True, ACCEPTED, f"requests that name `{owner.name}` have this priority")


def of_rewrite(owner: Owner, claims: Sequence[str | None], lost: Sequence[tuple[str | None, Owner | None]]) -> Verdict:
    """Return the verdict on a rewrite that claims models, None for every model, and has ``lost`` some of them."""
    if not lost:
        return Verdict(True, ACCEPTED, "every rule is followed")
    if len(claims) == 1:
        model, winner = lost[0]
        same = "matches every model too" if model is None else "matches the same model"
        return Verdict(False, CONFLICTED, f"{_before(winner, owner)} {same}")
    parts = [
        f"{_before(winner, owner)} matches {'every model' if model is None else f'`{model}`'}"
        for model, winner in lost[:_SHOWN]
    ]
    if len(lost) > _SHOWN:
        parts.append(f"and so on for {len(lost) - _SHOWN} more")
    if len(lost) == len(claims):
        return Verdict(False, CONFLICTED, "; ".join(parts))
    return Verdict(True, PARTLY, f"in use except for {len(lost)} of {len(claims)} models: {'; '.join(parts)}")


def _before(winner: Owner | None, owner: Owner) -> str:
    if winner is None:
        return "the picker's configuration comes first and"
    if winner.created != owner.created:
        return f"`{winner.name}` is older and"
    return f"`{winner.name}` is as old, comes first by name and"


def invalid(problem: str) -> Verdict:
    """Return the verdict on an object that cannot be used."""
    return Verdict(False, INVALID, problem)
