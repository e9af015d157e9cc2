"""Which capacity figures of published guides agree with what follows from the models' shapes, and which are wrong?

Run: ``python -m benchmarks.simulator.published [--json]``.

Sources: llm-d's guides "Offloading Prefix Cache to CPU Memory" (v0.4.0; called *CPU*) and "Offloading Prefix Cache to
Shared Storage" (*storage*), its benchmark reports and manifests of June 2026 (*reports*), LMCache's example "Offload KV
cache to CPU" (*LMCache*).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.simulator.published_figure import Figure, Verdict, figure, shown
from epp.catalog.gpu import GIB, GPUS
from epp.catalog.model import Model
from epp.catalog.models import MODELS
from epp.lab.size.layout import layout_of
from epp.lab.size.memory import Range, default_sequences, overhead_of, share_of
from epp.printing.prose import console_for, show

GB, TIB, BLOCK_TOKENS = 1e9, 2**40, 16
_QWEN, _LLAMA, _QWEN_8B = (
    MODELS[name] for name in ("Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-8B")
)
_QWEN_TOKEN, _LLAMA_TOKEN = _QWEN.kv_bytes_per_token(), _LLAMA.kv_bytes_per_token()
_QWEN_BLOCK, _LLAMA_BLOCK = BLOCK_TOKENS * _QWEN_TOKEN, BLOCK_TOKENS * _LLAMA_TOKEN


def figures() -> list[Figure]:
    """Return all figures, computed on this call."""
    return [*_cpu_guide(), *_storage_guide(), *_reports(), *_lmcache()]


def _gb(size_bytes: float, digits: int = 1) -> tuple[str, float]:
    return f"{size_bytes / GB:,.{digits}f} GB", size_bytes


def _gib(size_bytes: float) -> tuple[str, float]:
    return f"{size_bytes / GIB:,.0f} GiB", size_bytes


def _kib(size_bytes: float) -> tuple[str, float]:
    return f"{size_bytes / 1024:g} KiB", size_bytes


def _mb(size_bytes: float) -> tuple[str, float]:
    return f"{size_bytes / 1e6:.3g} MB", size_bytes


def _count(number: float) -> tuple[str, float]:
    return f"{number:,.0f}", number


def _blocks(guide: str, model: Model, ranks: int, utilization: float, published: int) -> Figure:
    """Compare the blocks that an engine on H100 was observed to have to the estimate."""
    estimate = blocks_of(model, ranks, utilization)
    inside = estimate.low <= published <= estimate.high
    return Figure(
        guide=guide,
        what=f"GPU blocks of an engine, {_short(model)}, TP {ranks}, {utilization:g}",
        published=f"{published:,}",
        ours=f"{estimate.best:,}",
        ratio=published / estimate.best,
        verdict=Verdict.RIGHT if inside else Verdict.WRONG,
        why=f"measured by them, estimated by us: {estimate.low:,} to {estimate.high:,}",
    )


def blocks_of(model: Model, ranks: int, utilization: float) -> Range:
    """Return the estimated blocks of 16 tokens of ``model`` on ``ranks`` H100."""
    gpu = GPUS["h100"]
    kv = share_of(gpu.memory_bytes, utilization, model, ranks, overhead_of(model, default_sequences(gpu))).kv
    block_bytes = layout_of(model, BLOCK_TOKENS, ranks).block_bytes
    return Range(kv.low // block_bytes, kv.best // block_bytes, kv.high // block_bytes)


def _short(model: Model) -> str:
    return model.name.partition("/")[2].removesuffix("-Instruct")


def _cpu_guide() -> Iterator[Figure]:
    blocks = 9271
    yield figure(
        "CPU",
        "KV of a token, Qwen3-32B",
        ("0.0002 GB", 0.0002 * GB),
        (f"{_QWEN_TOKEN / GB:.6f} GB", _QWEN_TOKEN),
        "256 KiB: 2 × 64 layers × 8 heads × 128 × 2 bytes",
    )
    yield figure(
        "CPU",
        "a block of 16 tokens",
        ("2.62 MB", 2.62e6),
        _mb(_QWEN_BLOCK),
        "2.62 MB are 16 × 160 KiB: a model of 40 layers, as Qwen3-14B; Qwen3-32B has 64",
    )
    yield figure(
        "CPU",
        f"KV memory of an engine, {blocks:,} blocks",
        ("24.3 GB", 24.3 * GB),
        _gb(blocks * _QWEN_BLOCK),
        "from that block: the product is right",
    )
    yield figure(
        "CPU",
        "KV memory of 8 engines",
        ("193.4 GB", 193.4 * GB),
        _gb(8 * blocks * _QWEN_BLOCK),
        "and 8 × 24.3 are 194.4",
    )
    yield _blocks("CPU", _QWEN, 2, 0.65, blocks)
    yield figure(
        "CPU",
        "CPU memory of num_cpu_blocks 41000",
        ("100 GB", 100 * GB),
        _gb(41_000 * _QWEN_BLOCK),
        "at 160 KiB a token, too; the engine takes 172 GB where 100 were meant",
    )
    yield figure(
        "CPU",
        "lruCapacityPerServer for 100 GB",
        _count(41_000),
        _count(100 * GB // _QWEN_BLOCK),
        "from that number: the picker takes prefixes to be cached that LMCache, with 100 GB, has evicted",
    )


def _storage_guide() -> Iterator[Figure]:
    for model, block, token, known, memory, engines, total in (
        (_LLAMA, _LLAMA_BLOCK, "320 KB", 10_768, 55.0, 4, 220.0),
        (_QWEN, _QWEN_BLOCK, "256 KB", 8474, 34.7, 8, 277.0),
    ):
        kilobytes = float(token.split()[0])
        name = _short(model)
        yield figure(
            "storage",
            f"KV of a token, {name}",
            (token, kilobytes * 1024),
            _kib(model.kv_bytes_per_token()),
            "KB is written, KiB is meant",
        )
        yield figure(
            "storage",
            "a block of 16 tokens",
            (f"{kilobytes * 16 / 1000:g} MB", kilobytes * 16e3),
            _mb(block),
            "16 × KiB taken for KB",
        )
        yield figure(
            "storage",
            f"KV memory of an engine, {known:,} blocks",
            (f"{memory:g} GB", memory * GB),
            _gb(known * block),
            "from that block",
        )
        wrong = ", and 8 × 34, as is written, are 272" if model is _QWEN else ""
        yield figure(
            "storage",
            f"KV memory of {engines} engines",
            (f"{total:g} GB", total * GB),
            _gb(engines * known * block),
            f"from that block{wrong}",
        )
        yield _blocks("storage", model, 4 if model is _LLAMA else 2, 0.65, known)
    yield figure(
        "storage", "CPU memory, 20 GB × 16 GPUs", ("320 GB", 320 * GB), _gb(16 * 20 * GB, 0), "LMCache counts per GPU"
    )
    cpu_bytes = 64_424_509_440
    yield figure(
        "storage",
        "CPU memory, 64.42 GB × 4",
        ("356 GB", 356 * GB),
        _gb(4 * cpu_bytes),
        "the product is 257.7; further down the guide has it as 256",
    )
    yield figure(
        "storage",
        "CPU memory, 64 GB × 8",
        ("512 GB", 512 * GB),
        _gb(8 * cpu_bytes),
        "cpu_bytes_to_use is 60 GiB per engine",
    )
    yield from _storage_workloads()


def prompts_tokens(system_prompt_len: int) -> int:
    """Return the distinct prompt tokens of 50 groups with 50 questions of 256 tokens each."""
    return 50 * (system_prompt_len + 50 * 256)


def _storage_workloads() -> Iterator[Figure]:
    yield figure(
        "storage",
        "KV of 50 groups of 30,000 tokens, Qwen3-32B",
        ("653 GiB", 653 * GIB),
        _gib(prompts_tokens(30_000) * _QWEN_TOKEN),
        "50 questions each counted; 653 is what they take at 320 KiB a token, Llama's figure",
    )
    yield figure(
        "storage",
        "system_prompt_len of the 30K workload",
        _count(50_000),
        _count(30_000),
        "listed as 50000; title and KV say 30,000",
    )
    yield figure(
        "storage",
        "KV of 50 groups of 50,000 tokens, Llama-3.3-70B",
        ("994 GiB", 994 * GIB),
        _gib(prompts_tokens(50_000) * _LLAMA_TOKEN),
        "50 questions each counted; with the answers, too, it would be 1,739",
    )
    yield figure(
        "storage",
        "KV of 50 groups of 70,000 tokens, Llama-3.3-70B",
        ("1.3 TiB", 1.3 * TIB),
        (f"{prompts_tokens(70_000) * _LLAMA_TOKEN / TIB:.2f} TiB", prompts_tokens(70_000) * _LLAMA_TOKEN),
        "50 questions each counted",
    )
    yield figure("storage", "requests of 50 groups × 50 prompts", _count(2700), _count(2500), "200 prompts come twice")


def _reports() -> Iterator[Figure]:
    yield figure(
        "reports",
        "lruCapacityPerServer for 100 GiB, blocks of 64 tokens",
        _count(82_000),
        _count(100 * GIB // (64 * _QWEN_TOKEN)),
        f"82,000 × 64 tokens are {82_000 * 64 * _QWEN_TOKEN / GIB:,.0f} GiB; in blocks of 16 it would be "
        f"{100 * GIB // _QWEN_BLOCK:,}",
    )
    working_set = 250 * (16_000 + 5 * (256 + 256))
    yield figure(
        "reports",
        f"working set of 250 groups, {working_set:,} tokens",
        ("708 GiB", 708 * GIB),
        _gib(working_set * _QWEN_TOKEN),
        "160 KiB a token again",
    )
    yield figure("reports", "tokens that 200 GiB hold, Qwen3-32B", _count(819_200), _count(200 * GIB // _QWEN_TOKEN))
    yield _blocks("reports", _QWEN, 2, 0.9, 2_384_000 // 8 // BLOCK_TOKENS)


def _lmcache() -> Iterator[Figure]:
    yield figure(
        "LMCache",
        "10,000 tokens, Qwen3-8B",
        ("1.5 GB", 1.5 * GB),
        _gb(10_000 * _QWEN_8B.kv_bytes_per_token(), 2),
        "144 KiB a token: a rule that rounds up, for this model and 16 bits only",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if parser.parse_args(arguments).json:
        print(msgspec.json.format(msgspec.json.encode(figures())).decode())
    else:
        show(console_for(), shown(figures()))


if __name__ == "__main__":
    main()
