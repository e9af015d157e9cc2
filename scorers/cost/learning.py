"""Learn the constants of one kind of endpoint, and how much single endpoints differ, from observed requests.

The time that a request computed and loaded is split into regressions that do not disturb each other: prefill is learned
from the requests that waited for no load, a lane from the remaining time of those that did. An endpoint has two factors
of its own, for what it computes and for what it loads. They take effect once it has shown often enough that it differs
by more than its requests differ among themselves. So equal endpoints stay equal, and an endpoint that is slow, or
reports wrong numbers, affects only itself.
"""

from __future__ import annotations

from math import isfinite, log
from typing import NamedTuple

from msgspec import structs

from scorers.cost.constants import LEAST, MOST, MOST_REQUESTS, Constants, Lane
from scorers.cost.quantile import Median
from scorers.cost.regression import BoundedRegression

NOISE_S, NOISE = 0.005, 0.1
"""The assumed variation of the time to first token: that many seconds, plus that share of the time. A guess; it only
determines the relative weight of requests of different sizes."""
SCEPTICISM = 0.5
QUEUE_NOISE = 0.5
"""The assumed variation of a queueing time, as a share of it, since it is known less well."""
FAST = 2.0
"""A request that is this many times faster than expected is not noise."""
LONGEST_S = 600.0
"""Longer than any prompt takes to compute without a wait."""
ENOUGH = 30
"""Number of observations of an endpoint before it may differ from its kind."""
DIFFERS = 0.15
"""How much it must differ, on a logarithmic scale."""
WIDEST = 8.0
"""The most that an endpoint can be slower or faster than its kind."""


class Sample(NamedTuple):
    """One request that was answered, and the work that was ahead of it. Units: tokens, seconds."""

    ttft_s: float
    prompt_tokens: int
    gpu_tokens: int
    """Tokens found on the GPU; the following two are what was loaded beyond those."""
    cpu_tokens: int = 0
    storage_tokens: int = 0
    queue_s: float = 0.0
    """Prefill that was ahead, as estimated at the pick."""
    lane_s: float = 0.0
    """Loads that were ahead on the request's lane."""
    running: int = 0
    stay_s: float | None = None
    """Time from the first token to the end."""


class Deviation:
    """A factor of one endpoint, relative to its kind.

    Invariant: the factor is 1 until ``ENOUGH`` observations show that it is far from 1.
    """

    __slots__ = ("_middle", "_spread")

    def __init__(self) -> None:
        self._middle = Median(1.0)
        self._spread = Median(0.1)

    @property
    def factor(self) -> float:
        """Seconds that this endpoint takes for each second of its kind."""
        off = abs(log(self._middle.value))
        count = self._middle.count
        if count < ENOUGH or off < DIFFERS or off * count**0.5 < 3.0 * self._spread.value:
            return 1.0
        return self._middle.value

    def doubt(self) -> None:
        """Reset the factor to 1 until new observations confirm it, which takes half as long as at first.

        For an endpoint that was not observed for long, and may have changed.
        """
        self._middle.count = min(self._middle.count, ENOUGH // 2)

    def observe(self, ratio: float) -> None:
        """Add an observed ``ratio``: seconds taken over seconds expected of its kind."""
        if not (isfinite(ratio) and ratio > 0.0):
            return
        ratio = min(100.0, max(0.01, ratio))
        self._spread.observe(abs(log(ratio / self._middle.value)), 1e-3, 10.0)
        self._middle.observe(ratio, 1.0 / WIDEST, WIDEST)


class Learner:
    """Learns the constants of one kind of endpoint. Owner: one model.

    Invariant: ``constants`` are in the range of ``LEAST`` and ``MOST``, whatever was observed.
    """

    def __init__(self, start: Constants) -> None:
        self.constants = self._start = start
        self.used = 0
        """Number of samples that were used."""
        self.refused = 0
        """Number of samples that were rejected, because they are impossible or too far from all others."""
        self._computing = BoundedRegression(
            (start.fixed_s, start.token_s, start.pair_s, start.decode_s),
            (LEAST.fixed_s, LEAST.token_s, LEAST.pair_s, LEAST.decode_s),
            (MOST.fixed_s, MOST.token_s, MOST.pair_s, MOST.decode_s),
        )
        self._cpu = _lane(start.cpu, LEAST.cpu, MOST.cpu)
        self._storage = _lane(start.storage, LEAST.storage, MOST.storage)
        self._stay = Median(start.stay_s)

    def start_load_at(self, token_s: float) -> bool:
        """Start learning from the load time that an engine reports, unless a load from CPU memory was already observed.

        Returns whether to ignore further reports; False if ``token_s`` is out of range.
        """
        if self._cpu.observations:
            return True
        if not LEAST.cpu.token_s <= token_s <= MOST.cpu.token_s:
            return False
        lane = Lane(self.constants.cpu.fixed_s, token_s)
        self._cpu = _lane(lane, LEAST.cpu, MOST.cpu)
        self.constants = structs.replace(self.constants, cpu=lane)
        return True

    def observe(self, sample: Sample) -> tuple[float, bool] | None:
        """Learn from ``sample``, and return how its endpoint compares with its kind.

        Returns the seconds taken over those expected, and whether most of the time was loading; None if the sample
        shows nothing about the endpoint.
        """
        if sample.stay_s is not None:
            self._stay.observe(sample.stay_s, LEAST.stay_s, MOST.stay_s)
        comparison = self._learn(sample)
        (fixed_s, token_s, pair_s, decode_s), cpu, storage = (
            self._computing.constants, self._cpu.constants, self._storage.constants,
        )  # fmt: skip
        self.constants = Constants(
            fixed_s, token_s, pair_s, decode_s, Lane(cpu[0], cpu[1]), Lane(storage[0], storage[1]), self._stay.value
        )
        return comparison

    def _learn(self, sample: Sample) -> tuple[float, bool] | None:
        prompt, gpu, cpu, storage = sample.prompt_tokens, sample.gpu_tokens, sample.cpu_tokens, sample.storage_tokens
        held = gpu + cpu + storage
        timed = 0.0 < sample.ttft_s <= LONGEST_S and min(sample.queue_s, sample.lane_s) >= 0.0
        tokens = min(gpu, cpu, storage, sample.running) >= 0 and held < prompt and sample.running <= MOST_REQUESTS
        possible = timed and tokens and sample.queue_s + sample.lane_s <= 2 * LONGEST_S
        if not possible:  # NaN is not possible, either
            self.refused += 1
            return None
        known = self.constants
        computed = prompt - held
        amounts = (1.0, float(computed), computed * (prompt + held) * 0.5, float(sample.running))
        computing_s = self._computing.expected(amounts)
        load_s = sample.lane_s + max(
            known.cpu.fixed_s + (cpu + storage) * known.cpu.token_s if cpu + storage else 0.0,
            known.storage.fixed_s + storage * known.storage.token_s if storage else 0.0,
        )
        hidden_s = sample.queue_s
        # Also by what the start expects: constants that became too small must not give short times more weight.
        likely_s = max(computing_s, SCEPTICISM * self._start.prefill_s(prompt, held)) + max(hidden_s, load_s)
        usual_s = NOISE_S + NOISE * likely_s + QUEUE_NOISE * (hidden_s + sample.lane_s)
        took_s = sample.ttft_s
        times = (computing_s + max(hidden_s, load_s)) / took_s
        times = times if times > FAST else 1.0
        if not cpu + storage:
            accepted = self._computing.observe(amounts, took_s - hidden_s, usual_s, times)
        elif load_s <= hidden_s:
            return None  # the load was hidden, and the length of a wait is not a constant
        else:
            left_s = took_s - computing_s - sample.lane_s  # below 0 as often as it is too long
            if storage:
                accepted = self._storage.observe((1.0, float(storage)), left_s, usual_s)
            else:
                accepted = self._cpu.observe((1.0, float(cpu)), left_s, usual_s)
        self.used += accepted
        self.refused += not accepted
        clear = hidden_s + sample.lane_s < 0.2 * computing_s
        if not clear:
            return None
        share = load_s / (computing_s + load_s) if computing_s + load_s else 0.0
        if share > 0.5:
            return max(1e-6, took_s - computing_s) / load_s, True
        return (took_s / computing_s, False) if share < 0.1 and computing_s else None


def _lane(start: Lane, least: Lane, most: Lane) -> BoundedRegression:
    return BoundedRegression(
        (start.fixed_s, start.token_s), (least.fixed_s, least.token_s), (most.fixed_s, most.token_s)
    )
