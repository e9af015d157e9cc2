"""The compared policies, each as the configuration that an operator would write.

``CPU_BLOCKS`` stands for the capacity of the simulated engine's CPU tier, in blocks of 16 tokens.

``seeds`` and ``guide`` are configurations of the Go picker, and are meant to decide as it does with them. Its v0.4
looks at the first 256 blocks of a prompt. Its v0.9 takes the engine's number of blocks for its own, which have at least
64 tokens, and so remembers four times what a GPU holds; the guide's number for the CPU tier comes to 12.8 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from epp.config.load import load_file, load_text
from epp.config.plan import Plan
from epp.config.strict import nearest
from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.errors import ConfigError
from epp.lab.engine.preset import Preset
from epp.lab.fleet.baselines import LMetricScorer, RoundRobinPicker
from scorers.prefix.parameters import DEFAULT_CAPACITY_BLOCKS

CONFIG_BLOCK_TOKENS = 16
"""The block size that ``lruCapacityPerServer`` counts in where ``blockSizeTokens`` is not given."""

OVERSIZED = 12.8
"""The factor in llm-d's guide of June 2026: 82,000 blocks of 64 tokens, for 100 GiB."""

_HEAD = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
"""
_GPU = "- {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer}\n"
_CPU = """\
- type: approx-prefix-cache-producer
  name: cpu-prefix-cache-producer
  parameters: {autoTune: false, lruCapacityPerServer: CPU_BLOCKS}
"""
_GPU_SCORER = """\
- {type: prefix-cache-scorer, name: gpu-prefix, parameters: {prefixMatchInfoProducerName: gpu-prefix-cache-producer}}
"""
_GPU_UNTOLD = """\
- {type: approx-prefix-cache-producer, name: gpu-prefix-cache-producer, parameters: {followHorizon: false}}
"""
_CPU_UNTOLD = """\
- type: approx-prefix-cache-producer
  name: cpu-prefix-cache-producer
  parameters: {autoTune: false, lruCapacityPerServer: CPU_BLOCKS, followHorizon: false}
"""
_GPU_BY_DEFAULT = _GPU_UNTOLD.replace("followHorizon", "autoTune: false, followHorizon")
_CPU_BY_DEFAULT = _CPU_UNTOLD.replace("CPU_BLOCKS", str(DEFAULT_CAPACITY_BLOCKS))
_GPU_IN_LARGER_BLOCKS = """\
- type: approx-prefix-cache-producer
  name: gpu-prefix-cache-producer
  parameters: {autoTune: false, lruCapacityPerServer: GPU_BLOCKS, blockSizeTokens: 64, followHorizon: false}
"""
_CPU_SCORER = """\
- {type: prefix-cache-scorer, name: cpu-prefix, parameters: {prefixMatchInfoProducerName: cpu-prefix-cache-producer}}
"""
_LOAD = "- type: queue-scorer\n- type: kv-cache-utilization-scorer\n"


def _profile(*weighted: str) -> str:
    lines = ["schedulingProfiles:\n- name: default\n  plugins:\n"]
    for reference in weighted:
        name, _, weight = reference.partition(" ")
        lines.append(f"  - {{pluginRef: {name}, weight: {weight}}}\n" if weight else f"  - {{pluginRef: {name}}}\n")
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to choose endpoints."""

    name: str
    title: str
    config: str
    """An ``EndpointPickerConfig``; ``CPU_BLOCKS`` and ``GPU_BLOCKS`` stand for its tiers in blocks of 16 tokens."""
    tier_aware: bool = True
    """Whether the policy takes the CPU tier into account."""


_TIERED_PROFILE = _profile("queue-scorer 2", "kv-cache-utilization-scorer 2", "gpu-prefix 1", "cpu-prefix 1")
_TIERED = _HEAD + _LOAD + _GPU + _CPU + _GPU_SCORER + _CPU_SCORER

POLICIES = (
    Policy("round-robin", "round robin", _HEAD + "- type: round-robin-picker\n", tier_aware=False),
    Policy("random", "random", _HEAD + "- type: random-picker\n", tier_aware=False),
    Policy("least-requests", "least requests in flight", _HEAD + "- type: active-request-scorer\n", tier_aware=False),
    Policy(
        "gpu-only", "GPU-only prefix 2:2:2",
        _HEAD + _LOAD + _GPU + _GPU_SCORER
        + _profile("queue-scorer 2", "kv-cache-utilization-scorer 2", "gpu-prefix 2"),
        tier_aware=False,
    ),
    Policy(
        "tiered", "tier-aware 2:2:1:1",
        _TIERED + _TIERED_PROFILE,
    ),
    Policy(
        "seeds", "llm-d v0.4, 2:2:1:1, the first 256 blocks of a prompt",
        _HEAD.replace("llm-d.ai", "inference.networking.x-k8s.io") + _LOAD + """\
- type: prefix-cache-scorer
  name: gpu-prefix-cache-scorer
  parameters: {blockSizeTokens: 16, maxPrefixBlocksToMatch: 256, followHorizon: false}
- type: prefix-cache-scorer
  name: cpu-prefix-cache-scorer
  parameters:
    autoTune: false
    lruCapacityPerServer: 41000
    blockSizeTokens: 16
    maxPrefixBlocksToMatch: 256
    followHorizon: false
"""
        + _profile(
            "queue-scorer 2", "kv-cache-utilization-scorer 2", "gpu-prefix-cache-scorer 1", "cpu-prefix-cache-scorer 1"
        ),
    ),
    Policy(
        "guide", "llm-d guide of June 2026, 1:1:1:1:1, 82,000 blocks of 64 tokens",
        _TIERED.replace("CPU_BLOCKS", "82000, blockSizeTokens: 64, followHorizon: false")
        .replace(_GPU, _GPU_IN_LARGER_BLOCKS) + "- type: no-hit-lru-scorer\n"
        + _profile("queue-scorer", "kv-cache-utilization-scorer", "gpu-prefix", "cpu-prefix", "no-hit-lru-scorer"),
    ),
    Policy(
        "affinity", "affinity filter, then tokens in flight",
        _HEAD + _GPU + _CPU + "- type: prefix-cache-affinity-filter\n- type: token-load-scorer\n"
        + _profile("prefix-cache-affinity-filter", "token-load-scorer"),
    ),
    Policy(
        "tiered-approximate", "tier-aware 2:2:1:1, by its own record of picks alone",
        _HEAD + _LOAD + _GPU_UNTOLD + _CPU_UNTOLD + _GPU_SCORER + _CPU_SCORER + _TIERED_PROFILE,
    ),
    Policy(
        "tiered-oversized", "tier-aware 2:2:1:1, the CPU tier taken for 12.8 times what it holds",
        _HEAD + _LOAD + _GPU_UNTOLD + _CPU_UNTOLD.replace("CPU_BLOCKS", "OVERSIZED_BLOCKS") + _GPU_SCORER + _CPU_SCORER
        + _TIERED_PROFILE,
    ),
    Policy(
        "tiered-default", "tier-aware 2:2:1:1, every tier taken for 31,250 blocks of 16 tokens, since nobody says more",
        _HEAD + _LOAD + _GPU_BY_DEFAULT + _CPU_BY_DEFAULT + _GPU_SCORER + _CPU_SCORER + _TIERED_PROFILE,
    ),
    Policy("cost", "estimated seconds: tier-cost-scorer", _HEAD + _GPU + _CPU + "- type: tier-cost-scorer\n"),
    Policy("cost-picker", "estimated seconds: tier-cost-picker", _HEAD + _GPU + _CPU + "- type: tier-cost-picker\n"),
    Policy(
        "cost-approximate", "estimated seconds, by the picker's own record of picks alone",
        _HEAD + _GPU_UNTOLD + _CPU_UNTOLD + "- type: tier-cost-scorer\n",
    ),
    Policy("lmetric", "LMetric: new tokens × batch", _HEAD + _GPU + _CPU + "- type: lmetric-scorer\n"),
)  # fmt: skip
BY_NAME = {policy.name: policy for policy in POLICIES}


def choose(name: str) -> Policy:
    """Return the policy called ``name``, or the one in the configuration file of that name.

    Raises: ConfigError that lists the existing policies, or names the file's fault.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json"):
        load_file(path)
        return Policy(path.stem, path.name, path.read_text())
    raise ConfigError(f"unknown policy {name!r}{nearest(name, BY_NAME)}; or a file: my.yaml")


def plan_of(policy: Policy, preset: Preset, seed: int) -> Plan:
    """Return a fresh plan of ``policy`` for engines of ``preset``, with ``seed`` for its random choices.

    Raises: ConfigError that names the key.
    """
    text = policy.config
    tiers = {
        "OVERSIZED_BLOCKS": preset.cpu_blocks * OVERSIZED,
        "CPU_BLOCKS": preset.cpu_blocks,
        "GPU_BLOCKS": preset.gpu_blocks,
    }
    for word, blocks in tiers.items():
        text = text.replace(word, str(max(1, round(blocks * preset.block_tokens / CONFIG_BLOCK_TOKENS))))
    own = {kind.type_name: kind for kind in (RoundRobinPicker, LMetricScorer)}
    try:
        plan = build(load_text(text), random=Random(seed), kinds={**known_kinds(), **own})
    except ConfigError as error:
        raise ConfigError(f"policy {policy.title}: {error}") from error
    if plan.admission.flow is not None:
        raise ConfigError(
            f"policy {policy.title}: featureGates: waiting for room is not simulated; take flowControl out"
        )
    return plan
