"""How much time does KV in CPU memory save when the same prompts come a second time, offline?

Runs the same prompts twice through ``LLM(...)``, with vLLM's own prefix caching off, and prints both times:

    python -m benchmarks.kvengine.two_pass                       # without kvengine: nothing is saved
    python -m benchmarks.kvengine.two_pass --enable-kvengine

On a GPU the model is the largest of three Qwen3 that fits; without one it is a small Llama with random weights on
vLLM's CPU backend (``tests/vllm/environment.py`` makes that environment; run there). Host memory is what the prompts
need, as far as this machine has it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.kvengine.engine_cpu import EngineCpu
from benchmarks.kvengine.kvengine_transfer import transfer
from benchmarks.rig.machine import machine
from kvengine.limits import GIB, grant

if TYPE_CHECKING:
    from vllm import LLM

GIB_PER_TOKEN = 1.5 / 10_000
"""A rule of thumb for models of 8 billion parameters in 16 bits; the exact figure of Qwen3-8B is 1.37 / 10,000."""
NATIVE_FP8 = 89
"""Compute capability times ten, from which on a GPU has FP8 units."""
MAX_MODEL_TOKENS = 16_384
CPU_OPTIONS = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,
    "max_num_batched_tokens": 2048,
}
CPU_ENVIRONMENT = {
    "VLLM_CPU_CI_ENV": "1",  # no compilation, no warm-up
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


class Gpu(NamedTuple):
    """The properties of a GPU that decide which model fits."""

    gib: float
    capability: int


class Choice(NamedTuple):
    """A model and how to start it."""

    model: str
    options: dict[str, Any]


class Run(NamedTuple):
    """The times of one pass over all prompts."""

    wall_s: float
    cpu_s: float
    """CPU time of the engine's processes, which a shared CPU disturbs less than the wall time."""


def pick_model(gpu: Gpu) -> Choice:
    """Return the largest model that fits. Raises: RuntimeError with the memory that is needed."""
    if gpu.gib >= 36:
        return Choice("Qwen/Qwen3-8B", {})
    if gpu.gib >= 20 and gpu.capability >= NATIVE_FP8:
        return Choice("Qwen/Qwen3-8B-FP8", {"kv_cache_dtype": "fp8"})
    if gpu.gib >= 10:
        return Choice("Qwen/Qwen3-1.7B", {})
    raise RuntimeError(f"the GPU has {gpu.gib:.1f} GiB, and the smallest model, Qwen/Qwen3-1.7B, needs 10")


def gpu_of_this_machine() -> Gpu | None:
    """Return the first GPU, or None; CUDA is not started in this process."""
    import torch

    if torch.version.cuda is None or not torch.cuda.device_count():
        return None
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    assert capability is not None
    return Gpu(current_platform.get_device_total_memory() / GIB, capability.to_int())


def host_gib(prompts: int, tokens: int, *, pinned: bool) -> float:
    """Return the GiB of host memory for ``prompts`` of ``tokens`` tokens, at least 1, as far as this machine has it."""
    wanted = int(max(1.0, prompts * tokens * GIB_PER_TOKEN) * GIB)
    granted = grant(wanted, workers_here=1, pinned=pinned)
    if granted.sentence is not None:
        print(granted.sentence)
    return granted.size_bytes / GIB


def texts(prompts: int, tokens: int) -> list[str]:
    """Return prompts that differ from their first token on."""
    return [f"[Prompt {number}] {'Hi ' * tokens}how are you?" for number in range(prompts)]


def start(choice: Choice, gib: float | None) -> LLM:
    """Start the engine, with kvengine and ``gib`` of host memory unless None."""
    from vllm import LLM

    options = dict(choice.options)
    if gib is not None:
        options["kv_transfer_config"] = transfer(max_local_cpu_size=gib, chunk_size=256)
    return LLM(model=choice.model, max_model_len=MAX_MODEL_TOKENS, enable_prefix_caching=False, **options)


def timed(llm: LLM, cpu: EngineCpu, prompts: list[str]) -> Run:
    """Run all prompts once, print the generated texts, and return the times."""
    from vllm import SamplingParams

    before, began = cpu.seconds(), time.perf_counter()
    answers = llm.generate(prompts, SamplingParams(temperature=0, top_p=0.95, max_tokens=1))
    run = Run(time.perf_counter() - began, cpu.seconds() - before)
    for answer in answers:
        print(f"Generated text: {answer.outputs[0].text!r}")
    return run


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-prompts", type=int, default=10)
    parser.add_argument("--num-tokens", type=int, default=10_000, help="of each prompt, about")
    parser.add_argument("--enable-kvengine", action="store_true")
    parser.add_argument("--model", help="instead of the one that fits")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    gpu = gpu_of_this_machine()
    with tempfile.TemporaryDirectory() as folder:
        if gpu is not None:
            choice = Choice(args.model, {}) if args.model else pick_model(gpu)
            choice.options["gpu_memory_utilization"] = 0.9
        else:
            from benchmarks.kvengine.random_model import make

            os.environ.update(CPU_ENVIRONMENT)
            choice = Choice(args.model or str(make(Path(folder))), dict(CPU_OPTIONS))
        print(f"Model: {args.model or (choice.model if gpu else 'a small Llama with random weights, on the CPU')}")
        gib = host_gib(args.num_prompts, args.num_tokens, pinned=gpu is not None) if args.enable_kvengine else None
        prompts = texts(args.num_prompts, args.num_tokens)
        with EngineCpu() as cpu:
            llm = start(choice, gib)
        print("\nFirst run:")
        first = timed(llm, cpu, prompts)
        print(f"First run time: {first.wall_s:.2f} seconds ({first.cpu_s:.2f} of CPU time)")
        print("\nSecond run:")
        second = timed(llm, cpu, prompts)
        print(f"Second run time: {second.wall_s:.2f} seconds ({second.cpu_s:.2f} of CPU time)")
        print(f"\nSpeedup (first run / second run): {first.wall_s / second.wall_s:.2f}x")
        print(f"By CPU time: {first.cpu_s / second.cpu_s:.2f}x")
        kept = f"kvengine with {gib:.2f} GiB" if gib is not None else "without kvengine"
        print(f"{args.num_prompts} prompts of about {args.num_tokens:,} tokens, {kept}; {machine()}")
        llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":  # the engine's process imports this module again
    sys.exit(main())
