"""Turns a fleet and a workload into a report."""

from __future__ import annotations

from epp.lab.size.advice import advice_for
from epp.lab.size.choices import choices_for
from epp.lab.size.fleet import Fleet
from epp.lab.size.options import SizeOptions
from epp.lab.size.placement import place
from epp.lab.size.prices import price, times_of
from epp.lab.size.remarks import remarks_on
from epp.lab.size.report import GpuPart, ModelPart, SizeReport
from epp.lab.size.tiers import GPU, tiers_of
from epp.lab.size.workload import Workload

PROMPT_TOKENS = 10_000
"""The length of the prefix that is priced if there is no workload."""


def size(fleet: Fleet, workload: Workload | None = None, options: SizeOptions | None = None) -> SizeReport:
    """Return the report. ``options`` are the user's, for the comparison of GPUs if none is named."""
    tiers, times = tiers_of(fleet), times_of(fleet)
    choices = choices_for(fleet, options or SizeOptions(), workload)
    prefix = workload.system_prompt_len if workload and workload.system_prompt_len else PROMPT_TOKENS
    prices = [price(fleet, times, tier, prefix) for tier in tiers if tier.tier != GPU]
    return SizeReport(
        endpoints=fleet.endpoints,
        model=_model_part(fleet),
        gpu=_gpu_part(fleet),
        choices=choices,
        tiers=tiers,
        prices=tuple(each for each in prices if each is not None),
        prefill_tokens_per_s=PROMPT_TOKENS / times.prefill_s(PROMPT_TOKENS) if times else None,
        workload=place(fleet, workload, tiers, times) if workload else None,
        advice=advice_for(fleet, tiers, workload),
        notes=(*fleet.notes, *remarks_on(fleet, choices)),
    )


def _model_part(fleet: Fleet) -> ModelPart | None:
    model = fleet.model
    if model is None:
        return None
    return ModelPart(
        name=model.name,
        layers=model.layers,
        window_layers=model.window_layers,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        weight_bytes=model.weight_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token(fleet.kv_dtype_bytes, fleet.ranks),
        kv_dtype_bytes=fleet.kv_dtype_bytes or model.dtype_bytes,
        max_model_len=model.max_model_len,
    )


def _gpu_part(fleet: Fleet) -> GpuPart | None:
    if fleet.gpu is None or fleet.share is None or fleet.layout is None:
        return None
    return GpuPart(
        name=fleet.gpu.name,
        per_endpoint=fleet.ranks,
        memory_bytes=fleet.gpu.memory_bytes,
        utilization=fleet.utilization,
        weight_bytes=fleet.share.weight_bytes,
        overhead_bytes=fleet.share.overhead.best,
        kv_bytes=fleet.share.kv.best,
        block_bytes=fleet.layout.block_bytes,
    )
