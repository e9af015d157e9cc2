"""The ways to choose that the demo compares, each as the configuration that a user would write.

Round robin is the proxy's own, without a picker: the standalone proxy has the address of a picker that does not run,
which is what its ``--fail-open`` does when the picker is down. The next two are the picker's, and differ only in the
prefix scorers: 2:2:2 with one for the GPU tier, 2:2:1:1 with one for each tier, so that the prefix has the same
total weight in both. The last one uses the estimated time to first token, like ``manifests/config/cost.yaml``, and
learns its cost constants from a sample of the responses.
"""

from __future__ import annotations

from dataclasses import dataclass

SEED_CPU_BLOCKS = 41000
"""CPU blocks of 16 tokens where the capacity is unknown: the llm-d guide's value."""

HEAD = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: max-score-picker
- type: single-profile-handler
- type: prefix-cache-scorer
  name: gpu-prefix-cache-scorer
"""

GPU_ONLY = (
    HEAD
    + """\
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: gpu-prefix-cache-scorer, weight: 2}
  - {pluginRef: max-score-picker}
"""
)

TIER_AWARE = (
    HEAD
    + """\
- type: prefix-cache-scorer
  name: cpu-prefix-cache-scorer
  parameters: {{autoTune: false, lruCapacityPerServer: {cpu_blocks}}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: queue-scorer, weight: 2}}
  - {{pluginRef: kv-cache-utilization-scorer, weight: 2}}
  - {{pluginRef: gpu-prefix-cache-scorer, weight: 1}}
  - {{pluginRef: cpu-prefix-cache-scorer, weight: 1}}
  - {{pluginRef: max-score-picker}}
"""
)


COST = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: approx-prefix-cache-producer
  name: gpu-prefix-cache-producer
- type: approx-prefix-cache-producer
  name: cpu-prefix-cache-producer
  parameters: {{autoTune: false, lruCapacityPerServer: {cpu_blocks}}}
- type: tier-cost-producer
- type: tier-cost-scorer
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: tier-cost-scorer}}
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to choose. ``config`` is the picker's; None leaves the choice to the proxy."""

    name: str
    title: str
    config: str | None
    flags: tuple[str, ...] = ()
    """Flags of ``tierwise standalone``."""


def arms(cpu_blocks: int = SEED_CPU_BLOCKS) -> tuple[Arm, ...]:
    """Return the arms, the baseline first; ``cpu_blocks`` is the CPU tier of each endpoint in blocks of 16 tokens."""
    return (
        Arm("round-robin", "round robin", None),
        Arm("gpu-only", "GPU-only prefix 2:2:2", GPU_ONLY),
        Arm("tier-aware", "tier-aware 2:2:1:1", TIER_AWARE.format(cpu_blocks=cpu_blocks)),
        Arm("cost", "by cost in seconds", COST.format(cpu_blocks=cpu_blocks), ("--sample-rate=0.1",)),
    )
