"""An endpoint on each GPU of the catalog, for when the user has not named one."""

from __future__ import annotations

from epp.catalog.gpu import GPUS, Gpu
from epp.catalog.model import Model
from epp.catalog.roofline import roofline
from epp.catalog.sharing import shareable
from epp.lab.size.fleet import Fleet
from epp.lab.size.layout import layout_of
from epp.lab.size.memory import Range, default_sequences, overhead_of, share_of
from epp.lab.size.options import SizeOptions
from epp.lab.size.report import ChoicePart
from epp.lab.size.workload import Workload

MOST_RANKS = 8
"""The most GPUs tried for one endpoint: as many as most machines have."""
PROMPT_TOKENS = 10_000


def choices_for(fleet: Fleet, options: SizeOptions, workload: Workload | None) -> tuple[ChoicePart, ...]:
    """Return a choice for each GPU on which the model fits, with the fewest GPUs that it fits on.

    Returns nothing if the GPU or the number of blocks is known.
    """
    model = fleet.model
    if model is None or fleet.gpu is not None or fleet.blocks is not None:
        return ()
    found = (_least(fleet, model, gpu, options, workload) for gpu in GPUS.values())
    return tuple(choice for choice in found if choice is not None)


def _least(fleet: Fleet, model: Model, gpu: Gpu, options: SizeOptions, workload: Workload | None) -> ChoicePart | None:
    counts = [fleet.ranks] if fleet.ranks_given else [n for n in range(1, MOST_RANKS + 1) if n & (n - 1) == 0]
    for ranks in counts:
        if shareable(model, ranks) is None and (choice := _choice(fleet, model, gpu, ranks, options, workload)):
            return choice
    return None


def _choice(
    fleet: Fleet, model: Model, gpu: Gpu, ranks: int, options: SizeOptions, workload: Workload | None
) -> ChoicePart | None:
    overhead = overhead_of(model, options.max_num_seqs or default_sequences(gpu))
    if options.overhead_bytes is not None:
        overhead = Range(*[options.overhead_bytes] * 3)
    share = share_of(gpu.memory_bytes, fleet.utilization, model, ranks, overhead)
    layout = layout_of(model, fleet.block_tokens, ranks, fleet.kv_dtype_bytes)
    low, best, high = (layout.tokens(kv // layout.block_bytes) for kv in (share.kv.low, share.kv.best, share.kv.high))
    if not best:
        return None
    times = roofline(model, gpu, ranks, fleet.kv_dtype_bytes)
    return ChoicePart(
        gpu=gpu.name,
        gpus_per_endpoint=ranks,
        weight_bytes=share.weight_bytes,
        tokens_per_endpoint=best,
        low_tokens_per_endpoint=low,
        high_tokens_per_endpoint=high,
        prefill_tokens_per_s=PROMPT_TOKENS / times.prefill_s(PROMPT_TOKENS),
        load_tokens_per_s=1 / times.load_s,
        hit_share=workload.at_one_of(fleet.endpoints).hit_share(best) if workload else None,
    )
