"""Makes the request that plugins see from its head and its parsed body.

Source: the headers of the Go picker; the current name of each has precedence over the deprecated one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from epp.client import REQUEST_ID, shortened
from epp.decision import RequestHead
from epp.parsers.base import Parsed
from scorers.base import Request

MODEL_REWRITE = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
FAIRNESS_ID = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
OBJECTIVE = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
DEFAULT_FAIRNESS_ID = "default-flow"
MAX_FAIRNESS_ID_BYTES = 128


def request_of(head: RequestHead, parsed: Parsed, objectives: Mapping[str, int], now: float) -> Request:
    """Return the request that plugins see; ``objectives`` are priorities by name."""
    objective = first(head, OBJECTIVE) or ""
    return Request(
        id=head.headers.get(REQUEST_ID) or str(uuid.uuid4()),
        model=parsed.model,
        target_model=parsed.target_model,
        prompts=parsed.prompts,
        prompt_tokens=parsed.prompt_tokens,
        streaming=parsed.streaming,
        headers=head.headers,
        objective=objective,
        priority=objectives.get(objective, 0) if objective else 0,
        fairness_id=fairness_id_of(head),
        received_s=now,
    )


def fairness_id_of(head: RequestHead) -> str:
    """Return the flow that a request belongs to.

    Flows are remembered, and clients name them: a name of more than ``MAX_FAIRNESS_ID_BYTES`` is shortened, to the same
    name that the metrics show.
    """
    return shortened(first(head, FAIRNESS_ID) or DEFAULT_FAIRNESS_ID, MAX_FAIRNESS_ID_BYTES)


def first(head: RequestHead, names: Sequence[str]) -> str | None:
    """Return the value of the first of ``names`` that was sent and is not empty; None if none was."""
    for name in names:
        if value := head.headers.get(name):
            return value
    return None
