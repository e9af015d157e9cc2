"""Send a request where prompts of its length belong."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from scorers.base import Candidate, Filter, Request, Scorer
from scorers.parameters import check_written

log = logging.getLogger(__name__)

UNLABELLED, OUTSIDE = 0.5, 0.3
"""The score of an endpoint without a range, and the upper bound for one whose range does not contain the prompt.
Source, with the formula: the Go picker's plugin."""
_RANGE = re.compile(r"\s*(\d{1,18})\s*-\s*(\d{1,18})\s*")
_KNOWN = 4096  # distinct labels, which operators set; rebuilt when full


class ContextRange(NamedTuple):
    """Prompt lengths that an endpoint is meant for, both ends included. Units: tokens."""

    least: int
    most: int

    def __contains__(self, tokens: object) -> bool:
        return isinstance(tokens, int) and self.least <= tokens <= self.most

    def score(self, tokens: int) -> float:
        """Return the score of a prompt with ``tokens``.

        Within the range it is above 0.3: the higher, the narrower the range is and the more room is left. Outside it is
        below 0.3: the higher, the nearer.
        """
        if tokens in self:
            width = self.most - self.least
            if not width:
                return 1.0
            fit = 0.7 / (1.0 + width / 10_000) + 0.3 * (self.most - tokens) / width
            return OUTSIDE + (1.0 - OUTSIDE) * fit
        distance = tokens - self.most if tokens > self.most else self.least - tokens
        return OUTSIDE / (1.0 + distance / 1_000)


class ContextLengthParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where the ranges are configured, and whether they filter."""

    label: str = "llm-d.ai/context-length-range"
    """The endpoint's label; its value is ``min-max`` in tokens."""
    enable_filtering: bool = False
    """Whether to leave out endpoints whose range does not contain the prompt's length."""

    def __post_init__(self) -> None:
        check_written("label", self.label)


class ContextLengthAware(Filter[ContextLengthParameters], Scorer[ContextLengthParameters]):
    """Score by how well an endpoint's range fits the prompt, and leave out the others if so configured.

    score[i] = 0.3 + 0.7 × (0.7 / (1 + width / 10000) + 0.3 × (max - tokens) / width) within the range, and 1 in a range
    of one length; 0.3 / (1 + distance / 1000) outside; 0.5 without a label; 0 for an invalid label, which also counts
    as outside when filtering.

    Reads: Candidate.labels; Request.prompt_tokens.
    """

    type_name = "context-length-aware"
    Parameters = ContextLengthParameters

    def __init__(self, parameters: ContextLengthParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._ranges: dict[str, ContextRange | None] = {}

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates whose range contains the prompt's length, or that have no label."""
        if not self.parameters.enable_filtering:
            return candidates
        label, tokens = self.parameters.label, request.prompt_tokens
        fits: dict[str | None, bool] = {None: True}
        for text in {c.labels.get(label) for c in candidates} - {None}:
            known = self._range(text)
            fits[text] = known is not None and tokens in known
        return [c for c in candidates if fits[c.labels.get(label)]]

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by its range."""
        label, tokens = self.parameters.label, request.prompt_tokens
        texts = [c.labels.get(label) for c in candidates]
        scores: dict[str | None, float] = {None: UNLABELLED}
        for text in set(texts) - {None}:
            known = self._range(text)
            scores[text] = 0.0 if known is None else known.score(tokens)
        return [scores[text] for text in texts]

    def _range(self, text: str | None) -> ContextRange | None:
        if text is None:
            return None
        if text not in self._ranges:
            if len(self._ranges) >= _KNOWN:
                self._ranges.clear()
            self._ranges[text] = parsed = parse_range(text)
            if parsed is None:
                log.warning(
                    "%s: label %s=%r is no range; write min-max in tokens", self.name, self.parameters.label, text
                )
        return self._ranges[text]


def parse_range(text: str) -> ContextRange | None:
    """Return a label such as ``0-2048`` as a range; None if it is invalid."""
    match = _RANGE.fullmatch(text)
    found = ContextRange(int(match[1]), int(match[2])) if match else None
    return found if found and found.least <= found.most else None
