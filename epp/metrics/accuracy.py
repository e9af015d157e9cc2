"""The accuracy of the predicted cache hits: predicted against actual cached tokens.

    accuracy = 1 - sum |predicted - actual| / sum of prompt tokens

over prompts of at least ``MIN_BLOCKS`` of the engine's blocks. A prediction is a share of the prompt, multiplied by
the engine's count of its tokens. It is compared with ``cached_tokens`` in total, and per tier if the engine reports
tiers. A token in several tiers counts for the fastest, from which the engine takes it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from epp.metrics.gauges import Reading
from scorers.base import Mode, Observation

log = logging.getLogger(__name__)

MIN_BLOCKS = 16
"""Minimum length of a prompt, in blocks: in shorter prompts, rounding to whole blocks is most of the error."""
DEFAULT_BLOCK_TOKENS = 16
"""The block size of an engine that has not reported it; vLLM's default."""
WINDOW_S, BUCKETS = 600.0, 10
"""The window of the recent accuracy, and the number of its pieces, which are dropped one by one. A guess: in lean mode
only a sample is measured."""
PIECE_S = WINDOW_S / BUCKETS
MOST_ADDRESSES = 10_000
"""Maximum number of addresses that are kept, including those of removed endpoints."""
TOTAL = "total"
"""The label value for all tiers together."""
_RANKS = {mode: rank for rank, mode in enumerate(Mode)}  # the best first
OK = 200


class Unmeasured(Enum):
    """The reason why a response cannot be compared with its prediction."""

    FAILED = "failed"
    """The response's status is not 200."""
    NO_USAGE = "no-usage"
    SHORT = "short"
    SILENT = "cached-tokens-unsaid"


class Account:
    """The sums of predicted and actual tokens of one tier in one mode. Units: tokens."""

    __slots__ = ("actual", "error", "predicted", "prompt", "recent")

    def __init__(self) -> None:
        self.prompt = self.predicted = self.actual = self.error = 0
        self.recent: deque[list[float]] = deque(maxlen=BUCKETS + 1)
        """The start, error tokens and prompt tokens of each non-empty piece of the window, oldest first."""

    def add(self, prompt: int, predicted: float, actual: int, piece: float) -> None:
        """Count one prompt, in the piece of the window that starts at ``piece``."""
        error = round(abs(predicted - actual))
        self.prompt += prompt
        self.predicted += round(predicted)
        self.actual += actual
        self.error += error
        if not self.recent or self.recent[-1][0] != piece:
            self.recent.append([piece, 0.0, 0.0])
        self.recent[-1][1] += error
        self.recent[-1][2] += prompt

    def accuracy(self, since: float) -> float | None:
        """Return the accuracy of the pieces since ``since``, or None if there are none."""
        recent = [(error, prompt) for piece, error, prompt in self.recent if piece >= since]
        prompts = sum([prompt for _, prompt in recent])
        return 1.0 - sum([error for error, _ in recent]) / prompts if prompts else None


class Accuracy:
    """Compares each seen response with its prediction, in 2 µs, and as much at the pick. Owner: the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accounts: dict[tuple[str, Mode], Account] = {}
        self._unmeasured = dict.fromkeys(Unmeasured, 0)
        self._reporting: set[str] = set()
        """Addresses of engines that have reported cached tokens. If such an engine reports none, it had none, as with
        older vLLM."""

    def observed(self, observation: Observation) -> None:
        """Compare the prediction with the engine's report."""
        prediction, prompt = observation.prediction, observation.prompt_tokens
        if not prediction.held:
            return  # no producer predicts
        if observation.status not in (OK, None):
            self._unmeasured[Unmeasured.FAILED] += 1
            return
        if prompt is None:
            self._unmeasured[Unmeasured.NO_USAGE] += 1
            return
        block_tokens = prediction.candidate.block_tokens or DEFAULT_BLOCK_TOKENS
        if prompt < MIN_BLOCKS * block_tokens:
            self._unmeasured[Unmeasured.SHORT] += 1
            return
        cached, address = observation.cached_tokens, prediction.candidate.address
        if cached is None:
            if address not in self._reporting:
                self._count_unreported(address)
                return
            cached = 0
        elif cached and address not in self._reporting:
            self._note(address)
        piece = self._clock() // PIECE_S * PIECE_S
        scale, by_tier = prompt / prediction.prompt_tokens, observation.cached_by_tier
        most = float((prompt - 1) // block_tokens * block_tokens)  # the last token is always computed
        reach, worst = 0.0, Mode.PRECISE
        for held in prediction.held:
            tokens = min(most, held.tokens * scale)
            if by_tier:  # the tokens that no faster tier holds
                account = self._account(held.tier.value, held.mode)
                account.add(prompt, max(0.0, tokens - reach), by_tier.get(held.tier, 0), piece)
            reach = max(reach, tokens)
            if _RANKS[held.mode] > _RANKS[worst]:
                worst = held.mode
        self._account(TOTAL, worst).add(prompt, reach, cached, piece)

    def readings(self) -> Iterator[Reading]:
        """Yield the sums and accuracies as metrics."""
        every = [((tier, mode.value), account) for (tier, mode), account in self._accounts.items()]
        for name, text, of in COUNTERS:
            yield Reading(name, text, LABELS, [(labels, of(account)) for labels, account in every], counter=True)
        since = self._clock() - WINDOW_S
        recent = [(labels, account.accuracy(since)) for labels, account in every]
        yield Reading(
            "tierwise_prediction_accuracy",
            "1 - error tokens / prompt tokens over the last ten minutes, where anything was measured in them.",
            LABELS,
            [(labels, accuracy) for labels, accuracy in recent if accuracy is not None],
        )
        yield Reading(
            "tierwise_predictions_unmeasured",
            "Responses that were seen and say nothing about the prediction, by why.",
            ("reason",),
            [((reason.value,), count) for reason, count in self._unmeasured.items()],
            counter=True,
        )

    def _account(self, tier: str, mode: Mode) -> Account:
        account = self._accounts.get((tier, mode))
        if account is None:
            account = self._accounts[tier, mode] = Account()
        return account

    def _note(self, address: str) -> None:
        if len(self._reporting) >= MOST_ADDRESSES:
            self._reporting.clear()
        self._reporting.add(address)

    def _count_unreported(self, address: str) -> None:
        if not self._unmeasured[Unmeasured.SILENT]:
            log.info(
                "endpoint %s does not say how many prompt tokens it had cached, so nobody knows how right predictions "
                "of that are; vLLM says it with --enable-prompt-tokens-details (told once, whatever the endpoint)",
                address,
            )
        self._unmeasured[Unmeasured.SILENT] += 1


LABELS = ("tier", "mode")
COUNTERS: tuple[tuple[str, str, Callable[[Account], int]], ...] = (
    (
        "tierwise_prediction_error_tokens",
        "How far off predictions of cached tokens were: |predicted - actual|, summed.",
        lambda account: account.error,
    ),
    (
        "tierwise_prediction_prompt_tokens",
        "Tokens of the prompts that this was measured of.",
        lambda account: account.prompt,
    ),
    ("tierwise_predicted_cached_tokens", "Of those, predicted to be cached.", lambda account: account.predicted),
    ("tierwise_actual_cached_tokens", "Of those, cached as the engines say.", lambda account: account.actual),
)
