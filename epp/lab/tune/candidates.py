"""The candidates, each a configuration: weights of the tiered profile, the affinity filter, costs in seconds.

The first ones are what people would try by hand; then come points of a coarse grid, drawn by seed. Points whose weights
differ by a common factor make the same decisions, and count as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import gcd
from random import Random

from epp.lab.fleet.engines import EngineKind
from epp.lab.fleet.policies import Policy

WEIGHTS = (0, 1, 2, 4, 8)
THRESHOLDS, PENALTIES_MS = (0.3, 0.5, 0.7, 0.8, 0.9), (500, 2000, 6000, 18_000, 0)
BASELINE = "2:2:1:1"

_HEAD = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
"""
_GPU_TIER = "- {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}\n"
_CPU_TIER = """\
- type: approx-prefix-cache-producer
  name: cpu-prefix-cache-producer
  parameters: {autoTune: false, lruCapacityPerServer: CPU_BLOCKS}
"""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the scorers of the tiered profile."""

    queue: int
    kv_utilization: int
    gpu_prefix: int
    cpu_prefix: int
    token_load: int = 0
    no_hit: int = 0

    @property
    def name(self) -> str:
        """The usual weights as people write them, followed by the others."""
        usual = ":".join(str(w) for w in (self.queue, self.kv_utilization, self.gpu_prefix, self.cpu_prefix))
        more = [f"{name} {w}" for name, w in (("token load", self.token_load), ("no hit", self.no_hit)) if w]
        return ", ".join([usual, *more])

    @property
    def all(self) -> tuple[int, ...]:
        """The weights in the order of the fields."""
        return (self.queue, self.kv_utilization, self.gpu_prefix, self.cpu_prefix, self.token_load, self.no_hit)

    def reduced(self) -> Weights:
        """Return the smallest whole weights that make the same decisions."""
        common = gcd(*self.all) or 1
        return Weights(*(weight // common for weight in self.all))

    def policy(self, *, has_cpu_tier: bool = True) -> Policy:
        """Return the configuration; scorers without weight, or of a missing tier, are left out."""
        scorers = (
            ("queue-scorer", "", self.queue),
            ("kv-cache-utilization-scorer", "", self.kv_utilization),
            ("prefix-cache-scorer", "gpu-prefix", self.gpu_prefix),
            ("prefix-cache-scorer", "cpu-prefix", self.cpu_prefix if has_cpu_tier else 0),
            ("token-load-scorer", "", self.token_load),
            ("no-hit-lru-scorer", "", self.no_hit),
        )
        plugins, profile = "", ""
        for kind, name, weight in scorers:
            if not weight:
                continue
            if name:
                plugins += (
                    f"- {{type: {kind}, name: {name}, "
                    f"parameters: {{prefixMatchInfoProducerName: {name}-cache-producer}}}}\n"
                )
            else:
                plugins += f"- type: {kind}\n"
            profile += f"  - {{pluginRef: {name or kind}, weight: {weight}}}\n"
        return Policy(self.name, f"weights {self.name}", _tiers(has_cpu_tier) + plugins + _profile(profile))


def _tiers(has_cpu_tier: bool) -> str:
    return _HEAD + _GPU_TIER + (_CPU_TIER if has_cpu_tier else "")


USUAL = Weights(2, 2, 1, 1)
BY_HAND = (
    Weights(1, 1, 1, 1),
    Weights(2, 2, 2, 1),
    Weights(2, 2, 1, 2),
    Weights(2, 2, 4, 4),
    Weights(1, 0, 1, 1),
    Weights(0, 0, 1, 1, token_load=1),
    Weights(0, 0, 1, 1, token_load=2),
    Weights(1, 1, 1, 1, no_hit=1),
)


def candidates(count: int, engine: EngineKind, kinds: Collection[str], seed: int) -> list[Policy]:
    """Return the baseline and up to ``count`` others; equal seeds give equal ones.

    ``kinds`` are the types of plugins that exist.
    """
    return [
        USUAL.policy(has_cpu_tier=engine.cpu_tokens > 0),
        *islice(_others(engine, kinds, Random(f"candidates {seed}")), count),
    ]


def _others(engine: EngineKind, kinds: Collection[str], random: Random) -> Iterator[Policy]:
    has_cpu = engine.cpu_tokens > 0
    tiers = _tiers(has_cpu)

    def without_idle(weights: Weights) -> Weights:
        return (weights if has_cpu else replace(weights, cpu_prefix=0)).reduced()

    yield from _costs(engine, kinds, tiers)
    peak = round(1 / engine.preset().timing.token_s)
    seen = {without_idle(USUAL)}
    affinities = [(threshold, penalty) for threshold in THRESHOLDS for penalty in PENALTIES_MS]
    first = affinities.pop(affinities.index((0.8, 18_000)))
    random.shuffle(affinities)
    yield _affinity(*first, peak, tiers)
    for weights in BY_HAND:
        if (point := without_idle(weights)) not in seen:
            seen.add(point)
            yield (weights if has_cpu else point).policy(has_cpu_tier=has_cpu)
    misses = 0
    while misses < 1000:
        if affinities and random.random() < 0.25:
            yield _affinity(*affinities.pop(), peak, tiers)
        drawn = [random.choice(WEIGHTS) for _ in range(5)]
        point = without_idle(Weights(*[*drawn, random.choice((0, 0, 1, 2))]))
        if point in seen or not (point.gpu_prefix or point.cpu_prefix):
            misses += 1
            continue
        seen.add(point)
        yield point.policy(has_cpu_tier=has_cpu)


def _affinity(threshold: float, penalty_ms: int, peak: int, tiers: str) -> Policy:
    name = f"affinity {threshold:g}, {penalty_ms:,} ms"
    plugins = f"""\
- type: prefix-cache-affinity-filter
  parameters: {{affinityThreshold: {threshold:g}, maxTTFTPenaltyMs: {penalty_ms}, peakPrefillThroughput: {peak}}}
- type: token-load-scorer
"""
    profile = _profile("  - {pluginRef: prefix-cache-affinity-filter}\n  - {pluginRef: token-load-scorer}\n")
    return Policy(name, f"affinity filter, {name.removeprefix('affinity ')}", tiers + plugins + profile)


def _costs(engine: EngineKind, kinds: Collection[str], tiers: str) -> Iterator[Policy]:
    """Yield candidates that use seconds instead of weights, if ``kinds`` has their scorer."""
    if "tier-cost-scorer" not in kinds:
        return
    started = f"{{model: {engine.model}, gpu: {engine.gpu}, gpusPerEndpoint: {engine.ranks}}}"
    producer = f"- {{type: tier-cost-producer, parameters: {started}}}\n" if "tier-cost-producer" in kinds else ""
    scorer = producer + "- type: tier-cost-scorer\n"
    profile = _profile("  - {pluginRef: tier-cost-scorer, weight: 1}\n")
    yield Policy("cost", "seconds, tier-cost-scorer", tiers + scorer + profile)
    if "tier-cost-picker" in kinds:
        for few in (2, 8):
            picker = producer + f"- {{type: tier-cost-picker, parameters: {{randomEndpoints: {few}}}}}\n"
            profile = _profile("  - {pluginRef: tier-cost-picker}\n")
            yield Policy(f"cost of holders and {few}", f"seconds, tier-cost-picker with {few} by lot",
                         tiers + picker + profile)  # fmt: skip


def _profile(plugins: str) -> str:
    return f"schedulingProfiles:\n- name: default\n  plugins:\n{plugins}"
