"""The recommended settings of the engine, the offload engine and the picker."""

from __future__ import annotations

from math import ceil

from epp.catalog.gpu import GIB
from epp.lab.size.fleet import Fleet
from epp.lab.size.report import AdvicePart, TierPart
from epp.lab.size.workload import Workload

PICKER_BLOCK_TOKENS = 16
"""The block size that ``lruCapacityPerServer`` counts in here unless ``blockSizeTokens`` is given."""
GO_BLOCK_TOKENS = 64
"""The smallest block size that it counts in since v0.9 of the Go picker. Source: llm-d-inference-scheduler#1158."""
AS_GIVEN = "as given"
USUAL, MOST_UTILIZATION = 0.9, 0.95
FOUND_AGAIN = 0.99
"""The share of shared prompts that a large enough CPU tier finds again."""


def advice_for(fleet: Fleet, tiers: tuple[TierPart, ...], workload: Workload | None) -> tuple[AdvicePart, ...]:
    """Return the settings for which there is enough information."""
    by_name = {tier.tier: tier for tier in tiers}
    needed_tokens = _needed(fleet, by_name.get("gpu"), workload)
    advice = [*_utilization(fleet, workload), *_offload(fleet, needed_tokens), *_index(by_name, needed_tokens)]
    return tuple(advice)


def _utilization(fleet: Fleet, workload: Workload | None) -> list[AdvicePart]:
    share, gpu, layout = fleet.share, fleet.gpu, fleet.layout
    if share is None or gpu is None or layout is None:
        return []
    own = share.weight_bytes + share.overhead.best

    def tokens_at(utilization: float) -> int:
        return layout.tokens(max(0, int(gpu.memory_bytes * utilization) - own) // layout.block_bytes)

    value, workload_fits = max(USUAL, fleet.utilization), ""
    if workload is not None and fleet.blocks_source == "estimated":
        tokens = workload.at_one_of(fleet.endpoints).all_tokens
        blocks = ceil(tokens / layout.block_tokens) * (layout.full_groups + layout.window_groups)
        needed = ceil((own + blocks * layout.block_bytes) / gpu.memory_bytes * 100) / 100
        if needed <= MOST_UTILIZATION:
            workload_fits = f"; from {needed:.2f} on the whole workload fits"
            value = max(value, needed)
        else:
            workload_fits = "; at none of them the whole workload fits"
    why = f"holds {tokens_at(value):,} tokens"
    if value == USUAL:
        why += ", vLLM's default"
    if fleet.utilization < value:
        why += f"; {fleet.utilization:g}, as given, {tokens_at(fleet.utilization):,}"
    if value < MOST_UTILIZATION:
        why += f"; {MOST_UTILIZATION:g} would hold {tokens_at(MOST_UTILIZATION):,}, with less left for peaks"
    why += workload_fits
    return [AdvicePart(setting="--gpu-memory-utilization", value=f"{value:g}", why=why)]


def _needed(fleet: Fleet, gpu: TierPart | None, workload: Workload | None) -> int | None:
    """Return the tokens that an endpoint's CPU tier should hold for ``workload``; 0 where the GPU holds all of it."""
    if workload is None:
        return None
    if (
        gpu is not None
        and fleet.gpu_keeps
        and workload.at_one_of(fleet.endpoints).hit_share(gpu.tokens_per_endpoint) >= FOUND_AGAIN
    ):
        return 0
    return ceil(workload.at_one_of(fleet.endpoints, answers_kept=False).capacity_for(FOUND_AGAIN))


def _offload(fleet: Fleet, needed_tokens: int | None) -> list[AdvicePart]:
    if fleet.token_bytes is None:
        return []
    most = fleet.ram_for_kv_bytes
    if needed_tokens is None:
        size_bytes = fleet.cpu_bytes
        why = AS_GIVEN if fleet.cpu_source != "--ram" else "what the host memory leaves"
    elif needed_tokens == 0:
        return [AdvicePart(setting="max_local_cpu_size", value="none", why="the GPU tier finds nearly all of it again")]
    else:
        chunks = ceil(needed_tokens / fleet.chunk_tokens) + 1
        size_bytes = ceil(chunks * fleet.chunk_tokens * fleet.token_bytes)
        why = f"finds {FOUND_AGAIN:.0%} of the workload's shared prompts again, {needed_tokens:,} tokens per endpoint"
        if most is not None and size_bytes > most:
            size_bytes, why = most, f"{why}, would be {size_bytes / GIB:,.1f} GiB: more than the host memory leaves"
        if most is None and fleet.cpu_bytes is not None and fleet.cpu_bytes >= size_bytes:
            why += f"; the {fleet.cpu_bytes / GIB:,.1f} GiB given are enough"
    if not size_bytes:
        return []
    per_worker = size_bytes / fleet.ranks / GIB
    if why == AS_GIVEN:
        rounded = per_worker
    elif needed_tokens is not None and size_bytes != most:
        rounded = ceil(per_worker * 10) / 10
    else:
        rounded = int(per_worker * 10) / 10
    if fleet.model is not None and (fleet.model.window_layers or fleet.model.latent_dim):
        size = round(rounded * fleet.ranks * GIB)
        return [
            AdvicePart(setting="cpu_bytes_to_use", value=str(size), why=f"vLLM's own offloading, per endpoint: {why}")
        ]
    in_bytes = str(round(rounded * fleet.ranks * GIB))
    if fleet.gpu is None and fleet.blocks is None and not fleet.ranks_given:  # the number of workers is unknown
        return [AdvicePart(setting="cpu_bytes_to_use", value=in_bytes, why=f"bytes per endpoint: {why}")]
    return [
        AdvicePart(
            setting="max_local_cpu_size",
            value=f"{rounded:g}",
            why=f"GiB per worker, of which an endpoint has {fleet.ranks}: {why}",
        ),
        AdvicePart(
            setting="cpu_bytes_to_use", value=in_bytes, why="the same in bytes per endpoint; give one of the two"
        ),
    ]


def _index(tiers: dict[str, TierPart], needed_tokens: int | None) -> list[AdvicePart]:
    cpu = tiers.get("cpu")
    if cpu is not None and needed_tokens == 0:
        return [
            AdvicePart(
                setting="lruCapacityPerServer",
                value="none",
                why="of the CPU tier: with the setting above there is none",
            )
        ]
    if cpu is not None:
        tokens, of_what = cpu.tokens_per_endpoint, "of what the CPU tier holds"
    elif needed_tokens:
        tokens, of_what = needed_tokens, "of the size advised above"
    else:
        return []
    blocks, theirs = tokens // PICKER_BLOCK_TOKENS, tokens // GO_BLOCK_TOKENS
    if not blocks:
        return []
    return [
        AdvicePart(
            setting="lruCapacityPerServer",
            value=str(blocks),
            why=f"blocks of {PICKER_BLOCK_TOKENS} tokens, {of_what}, {tokens:,} tokens; write it where the endpoint "
            f"does "
            f"not say it itself. The Go picker since v0.9 counts {GO_BLOCK_TOKENS} tokens: {theirs} there",
        )
    ]
