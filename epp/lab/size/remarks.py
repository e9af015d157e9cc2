"""Remarks that help a reader to interpret the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from epp.catalog.gpu import GIB
from epp.lab.size.choices import MOST_RANKS
from epp.lab.size.fleet import Fleet
from epp.lab.size.report import ChoicePart


def remarks_on(fleet: Fleet, choices: Sequence[ChoicePart] = ()) -> list[str]:
    """Return the remarks, one sentence each; ``choices`` are the report's if no GPU was named."""
    remarks: list[str] = []
    model, layout, blocks = fleet.model, fleet.layout, fleet.blocks
    remarks += _about_gpu(fleet, choices)
    remarks += _about_tiers_below(fleet)
    if blocks is not None and not blocks.best:
        remarks.append(
            "By this estimate the engine may not start for want of memory for KV: raise --gpu-memory-utilization, "
            "lower "
            "--max-num-seqs, or take more GPUs."
        )
    if blocks is not None and not blocks.exact:
        remarks.append(
            "GPU blocks are estimated: what the engine needs for itself is known to it alone. Its log line 'GPU KV "
            "cache "
            "size', or --metrics-url, says the truth; --num-gpu-blocks-override takes it."
        )
    if model is not None and layout is not None and blocks is not None:
        longest = layout.most_tokens(blocks.best)
        if 0 < longest < model.max_model_len:
            remarks.append(
                f"A sequence of {model.max_model_len:,} tokens, the model's most, does not fit: the engine starts with "
                f"--max-model-len={longest // 1024 * 1024 or longest} or less."
            )
    if model is not None and model.window_layers and layout is not None and blocks is not None:
        most = layout.most_tokens(blocks.best)
        remarks.append(
            f"{model.window_layers} of {model.layers} layers look back {model.window_tokens:,} tokens only: the "
            f"tokens of "
            f"the GPU tier are for all layers kept; up to {most:,} where blocks behind the windows were given up."
        )
    if model is not None and (model.window_layers or model.latent_dim) and fleet.cpu_bytes is not None:
        kind = "windows" if model.window_layers else "latent attention"
        remarks.append(
            f"kvengine refuses models with {kind}; the CPU tier is sized as for vLLM's own offloading, with all "
            f"layers kept."
        )
    if model is not None and not model.latent_dim and fleet.ranks > model.kv_heads:
        remarks.append(
            f"{fleet.ranks} GPUs share {model.kv_heads} KV heads: each is kept {fleet.ranks // model.kv_heads} "
            f"times, and "
            "so are the bytes of a token."
        )
    if model is not None and model.latent_dim and fleet.ranks > 1:
        remarks.append(
            f"{model.name} has latent attention, one vector for each token and layer, and each of {fleet.ranks} GPUs "
            f"keeps a copy of it: a token takes {fleet.ranks} times the bytes, and each GPU holds every token."
        )
    if fleet.share is not None and fleet.ram_bytes is not None and fleet.cpu_source == "--ram":
        remarks.append(
            f"of {fleet.ram_bytes / GIB:,.0f} GiB host memory, {(fleet.cpu_bytes or 0) / GIB:,.1f} GiB are taken for "
            f"KV: "
            "80% of what the engine's own processes leave, some 4 GiB each."
        )
    return remarks


def _about_gpu(fleet: Fleet, choices: Sequence[ChoicePart]) -> list[str]:
    """Return what is missing, or implausible, about the GPU."""
    remark = _without_gpu(fleet, choices) if fleet.gpu is None else _unlikely_blocks(fleet)
    return [remark] if remark else []


def _without_gpu(fleet: Fleet, choices: Sequence[ChoicePart]) -> str:
    if fleet.model is None:
        return ""
    if fleet.blocks is not None:
        return "Without --gpu nothing is said of times, and so not whether loading or computing is faster."
    if not choices:
        many = f"with --tensor-parallel-size={fleet.ranks}" if fleet.ranks_given else f"not even {MOST_RANKS} together"
        return f"No GPU that is known has room for the model, {many}; give --gpu, and --tensor-parallel-size as it is."
    return (
        "Without --gpu only what follows from the model alone is certain. The table has the GPUs that are known, with "
        "as few of them as have room for the model: --gpu and --tensor-parallel-size choose one, and give times and "
        "settings for it."
    )


def _unlikely_blocks(fleet: Fleet) -> str:
    gpu, share, layout, blocks = fleet.gpu, fleet.share, fleet.layout, fleet.blocks
    if gpu is None or share is None or layout is None or blocks is None or not blocks.exact:
        return ""
    taken, room = blocks.best * layout.block_bytes, gpu.memory_bytes - share.weight_bytes
    if taken > room:
        return (
            f"The endpoint says that it has {blocks.best:,} blocks, {taken / GIB:,.1f} GiB on each GPU, and beside the "
            f"weights one {gpu.name} has {max(0, room) / GIB:,.1f}: is --gpu right, and "
            f"--tensor-parallel-size={fleet.ranks}?"
        )
    if taken > share.kv.high:
        return (
            f"{blocks.best:,} blocks are {taken / GIB:,.1f} GiB on each GPU, and --gpu-memory-utilization="
            f"{fleet.utilization:g} leaves about {share.kv.best / GIB:,.1f}, {share.kv.high / GIB:,.1f} at most: an "
            "engine that is told to have so many may run out of memory."
        )
    if taken < share.kv.low / 2:
        return (
            f"{blocks.best:,} blocks are {taken / GIB:,.1f} GiB on each GPU, and --gpu-memory-utilization="
            f"{fleet.utilization:g} leaves about {share.kv.best / GIB:,.1f}: are model, --gpu and utilization those of "
            "the engine? Then most of the memory is idle."
        )
    return ""


def _about_tiers_below(fleet: Fleet) -> list[str]:
    remarks: list[str] = []
    ram, cpu = fleet.ram_bytes, fleet.cpu_bytes
    if ram is not None and cpu is not None and fleet.cpu_source != "--ram" and cpu > (fleet.ram_for_kv_bytes or 0):
        remarks.append(
            f"{cpu / GIB:,.1f} GiB of CPU tier are more than {ram / GIB:,.1f} GiB of host memory leave for it, about "
            f"{(fleet.ram_for_kv_bytes or 0) / GIB:,.1f}: the engine gets less, or the machine runs out of memory."
        )
    if cpu and fleet.cpu_tokens is None and fleet.token_bytes:
        chunk_bytes = fleet.chunk_tokens * fleet.token_bytes
        if cpu < chunk_bytes:
            remarks.append(
                f"{fleet.cpu_source}: {cpu / 2**20:,.4g} MiB hold not one chunk of {fleet.chunk_tokens} tokens, which "
                f"takes {chunk_bytes / 2**20:,.4g} MiB: the CPU tier holds nothing."
            )
    if fleet.storage_bytes and fleet.storage_bytes_per_s is None:
        remarks.append("Without --storage-bandwidth it is not said whether loading from storage is worth it.")
    if fleet.storage_bytes is None and fleet.storage_bytes_per_s is not None:
        remarks.append("--storage-bandwidth changes nothing without --storage.")
    return remarks
