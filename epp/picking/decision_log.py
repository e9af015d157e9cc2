"""Logs what happens to each request, for debugging (``--v=4``): its pick or its refusal, and its end.

The log lines of one request share ``request_id`` or ``pick``. Names that clients choose are quoted and shortened. No
line contains a prompt, a header or the text of a refusal, since a parser's refusal may quote what was sent.
"""

from __future__ import annotations

import logging

from epp.client import REQUEST_ID
from epp.decision import Outcome, RequestHead
from epp.errors import EppError
from epp.picking.profile import Schedule
from scorers.base import Candidate, Mode, Request

log = logging.getLogger(__name__)

MAX_NAME = 128
"""The most characters of a name that a client chose."""


def picked(pick_id: int, request: Request, schedule: Schedule, seconds: float) -> None:
    """Log that ``request`` goes to the first of ``schedule.chosen``."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    chosen = schedule.chosen[0]
    fields = {
        "request_id": bounded(request.id),
        "pick": pick_id,
        "endpoint": chosen.address,
        "model": bounded(request.model),
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": {tier: tokens for tier, tokens in tokens_by_tier(request, chosen).items() if tokens},
        "streaming": request.streaming,
        "decision_ms": round(seconds * 1000, 3),
    }
    log.debug("picked %s", schedule.summary(), extra={"fields": fields})


def picked_unscored(pick_id: int, head: RequestHead, chosen: Candidate) -> None:
    """Log that a request without a body goes to ``chosen``."""
    if log.isEnabledFor(logging.DEBUG):
        fields = {"request_id": bounded(head.headers.get(REQUEST_ID, "")), "pick": pick_id, "endpoint": chosen.address}
        log.debug("picked %s by lot, as it has no body", chosen.address, extra={"fields": fields})


def refused(request_id: str, error: EppError) -> None:
    """Log that a request was refused with ``error``."""
    if log.isEnabledFor(logging.DEBUG):
        fields = {"request_id": bounded(request_id), "status": error.http_status, "code": error.code}
        if error.dropped_reason is not None:
            fields["reason"] = error.dropped_reason
        log.debug("refused", extra={"fields": fields})


def ended(pick_id: int, address: str, outcome: Outcome) -> None:
    """Log that a request has ended; fields that were not observed are left out."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    fields: dict[str, object] = {"pick": pick_id, "endpoint": address, "cause": outcome.cause.value}
    if outcome.served_by not in (None, address):
        fields["served_by"] = outcome.served_by
    for name in ("status", "duration_s", "ttft_s", "response_bytes"):
        value = getattr(outcome, name)
        if value is not None:
            fields[name] = round(value, 6) if isinstance(value, float) else value
    if outcome.usage is not None:
        fields |= {
            "prompt_tokens": outcome.usage.prompt_tokens,
            "completion_tokens": outcome.usage.completion_tokens,
            "cached_tokens": outcome.usage.cached_tokens or 0,
        }
    if outcome.errors:
        fields["errors"] = ",".join(outcome.errors)
    log.debug("ended", extra={"fields": fields})


def tokens_by_tier(request: Request, candidate: Candidate) -> dict[str, int]:
    """Return the tokens of the prompt that ``candidate`` holds, by tier.

    If two producers cover one tier, the larger number counts, since both describe the same memory.
    """
    by_tier: dict[str, int] = {}
    for cached in request.cached.values():
        tier = cached.tier.value
        by_tier[tier] = max(by_tier.get(tier, 0), cached.tokens.get(candidate.slot, 0))
    return by_tier


def modes_by_tier(request: Request, candidate: Candidate) -> dict[str, str]:
    """Return the mode behind each number of ``tokens_by_tier``: the best one of all producers of the tier."""
    order = list(Mode)
    by_tier: dict[str, Mode] = {}
    for cached in request.cached.values():
        mode, tier = cached.modes.get(candidate.slot, Mode.APPROXIMATE), cached.tier.value
        by_tier[tier] = min(by_tier.get(tier, mode), mode, key=order.index)
    return {tier: mode.value for tier, mode in by_tier.items()}


def bounded(name: str) -> str:
    """Return ``name``, shortened to ``MAX_NAME`` characters."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
