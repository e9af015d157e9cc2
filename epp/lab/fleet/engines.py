"""The engines that fleets consist of: a model's shape on GPUs, timed by the roofline and calibrated once.

Blocks have 256 tokens here, which is what kvengine moves together. There are sixteen times fewer of them than of an
engine's own blocks, which makes a simulation six times as fast and changes hits by less than one such block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from epp.catalog.gpu import GPUS
from epp.catalog.models import MODELS
from epp.catalog.roofline import roofline
from epp.config.strict import nearest
from epp.errors import ConfigError
from epp.lab.engine.preset import Preset, Timing

BLOCK_TOKENS = 256
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections to the roofline. docs/simulator.md has the results."""

    overhead_s: float = 4e-3
    """Per step: scheduling, launches, collectives. Source: set so that a batch of 6 decodes at 17.9 ms, as in the
    baseline row of llm-d v0.4's low-cache table; that row is therefore not a prediction.
    """
    prefill: float = 1.0
    """Factor on the roofline's time of the linear layers, per token. Source: fitted on the HBM-only half of the ladder
    of June 2026 (8 rows): 1.0 was 4 to 9 % too fast there, 1.18 as much too slow.
    """


CALIBRATION = Calibration(overhead_s=4e-3, prefill=1.09)


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A model on some GPUs, and the capacity of its tiers. Units: tokens."""

    name: str
    model: str
    ranks: int
    gpu_tokens: int
    cpu_tokens: int
    max_model_len: int
    endpoints: int
    """Endpoints of the fleet in the published tables, which the presets of those tables are written for."""
    source: str
    gpu: str = "h100"
    max_num_seqs: int = 1024
    link_bytes_per_s: float | None = None
    """Between a GPU and the CPU tier; None is what large copies reach on that GPU."""
    offload_step_s: float = 0.0
    """What a CPU tier adds to the duration of every step."""

    calibration: Calibration = CALIBRATION

    def preset(self) -> Preset:
        """Return the preset that the simulator runs."""
        model, gpu = MODELS[self.model], GPUS[self.gpu]
        times = roofline(model, gpu, self.ranks)
        link = (self.link_bytes_per_s or gpu.load_bytes_per_s) * self.ranks
        offload_s = self.offload_step_s if self.cpu_tokens else 0.0
        return Preset(
            name=self.name,
            model=self.model,
            timing=Timing(
                overhead_s=self.calibration.overhead_s + offload_s,
                weights_s=times.weights_s,
                token_s=times.token_s * self.calibration.prefill,
                prefill_pair_s=times.pair_s,
                decode_context_s=times.decode_context_s,
            ),
            gpu_blocks=self.gpu_tokens // BLOCK_TOKENS,
            cpu_blocks=self.cpu_tokens // BLOCK_TOKENS,
            kv_bytes_per_token=model.kv_bytes_per_token(ranks=self.ranks),
            load_bytes_per_s=link,
            store_bytes_per_s=link,
            transfer_latency_s=1e-3,
            block_tokens=BLOCK_TOKENS,
            max_num_seqs=self.max_num_seqs,
            max_model_len=min(self.max_model_len, self.gpu_tokens // BLOCK_TOKENS * BLOCK_TOKENS),
        )


_QWEN, _LLAMA, _GPT_OSS = "Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b"

KINDS = {
    kind.name: kind
    for kind in (
        EngineKind(
            "qwen3-32b-tp2-h100", _QWEN, 2, 9271 * 16, 41_000 * 16, 40_960, 8,
            "llm-d v0.4, CPU offloading: gpu_memory_utilization 0.65, 9271 and 41000 blocks of 16 tokens",
        ),
        EngineKind(
            "qwen3-32b-tp2-h100-v0.4", _QWEN, 2, 9271 * 16, 41_000 * 16, 40_960, 8,
            "the same with the offloading of that time: fragments of 16 KiB, so 6.3 GB/s, and 0.27 ms a step",
            # Sources: vllm-project/vllm#42212 for copies of 16 KiB; before vLLM 0.12 each layer of a block was one
            # fragment, with keys and values apart. The step: fitted on the offloading row of the low-cache table (-1.5
            # %).
            link_bytes_per_s=6.3e9, offload_step_s=0.27e-3,
        ),
        EngineKind(
            "qwen3-32b-tp2-h100-full", _QWEN, 2, 2_384_000 // 8, 200 * GIB // (256 * 1024), 40_960, 8,
            "llm-d, tiered prefix cache, June 2026: 2,384,000 tokens in the GPUs of 8 engines, 200 GiB for each",
        ),
        EngineKind(
            "llama-3.3-70b-tp4-h100", _LLAMA, 4, 10_768 * 16, 80 * 10**9 // (320 * 1024), 131_072, 4,
            "llm-d, offloading to shared storage: 10768 blocks of 16 tokens, 20 GB of CPU memory for each GPU",
        ),
        EngineKind(
            "gpt-oss-120b-h100", _GPT_OSS, 1, 70_656, 100 * GIB // (72 * 1024), 131_072, 16,
            "llm-d, tiered prefix cache, June 2026: 100 GiB for each engine; its GPU as tierwise size has it at 0.95",
            max_num_seqs=512,
        ),
    )
}  # fmt: skip
DEFAULT = "qwen3-32b-tp2-h100"
OF_WORKLOADS = {
    "ladder-16k": "qwen3-32b-tp2-h100-full",
    "storage-50k": "llama-3.3-70b-tp4-h100",
    "storage-70k": "llama-3.3-70b-tp4-h100",
}
"""The engine of a workload's published tables, where it is not the default."""


def of_workload(title: str) -> EngineKind:
    """Return the engine of the published tables of the workload called ``title``; the default for any other."""
    return KINDS[OF_WORKLOADS.get(title, DEFAULT)]


def choose(name: str, gpu_tokens: int | None = None, cpu_tokens: int | None = None) -> EngineKind:
    """Return the kind called ``name``, with other tier sizes if given. Raises: ConfigError that lists known names."""
    if name not in KINDS:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, KINDS)}")
    kind = KINDS[name]
    given = [flag for flag, n in (("--gpu-tokens", gpu_tokens), ("--cpu-tokens", cpu_tokens)) if n is not None]
    if not given:
        return kind
    return replace(
        kind,
        gpu_tokens=kind.gpu_tokens if gpu_tokens is None else gpu_tokens,
        cpu_tokens=kind.cpu_tokens if cpu_tokens is None else cpu_tokens,
        source=f"{name} with other tiers: {' and '.join(given)}",
    )
