"""The report for people: a few tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from epp.catalog.gpu import GIB
from epp.lab.size.report import ChoicePart, GpuPart, ModelPart, PricePart, SizeReport, TierPart, WorkloadPart
from epp.printing.prose import Prose
from epp.printing.sheet import Sheet


def of_report(report: SizeReport) -> Iterator[RenderableType]:
    """Yield the whole report, part by part."""
    if report.model is not None:
        yield from (_model(report.model, report.gpu), Prose(""))
    tables = (
        _memory(report.gpu) if report.gpu is not None else None,
        _choices(report.choices) if report.choices else None,
        _tiers(report) if report.tiers else None,
        _prices(report.prices) if report.prices else None,
    )
    for table in tables:
        if table is not None:
            yield from (table, Prose(""))
    if report.workload is not None:
        yield from (*_workload(report.workload), Prose(""))
    if report.advice:
        yield from (_advice(report), Prose(""))
    for note in report.notes:
        yield Prose(f"• {note}", "dim", hang=2)


def _model(model: ModelPart, gpu: GpuPart | None) -> Text:
    windows = f" ({model.window_layers} with a window)" if model.window_layers else ""
    sparse = model.active_parameters < model.parameters * 0.8
    active = f", {parameters(model.active_parameters)} per token" if sparse else ""
    weights = f"weights {binary(model.weight_bytes)}"
    spread = f" over {gpu.per_endpoint} GPUs" if gpu is not None and gpu.per_endpoint > 1 else ""
    return Text.assemble(
        (model.name, "bold"),
        f": {parameters(model.parameters)} parameters{active}, {weights}; {model.layers} layers"
        f"{windows}, {model.kv_heads} KV heads of {model.head_dim}.\nKV of a token: "
        f"{model.kv_bytes_per_token / 1024:,.4g} "
        f"KiB{spread}, in {8 * model.kv_dtype_bytes} bits.",
    )


def _memory(gpu: GpuPart) -> Sheet:
    table = Sheet(f"One of {gpu.per_endpoint} {gpu.name} per endpoint", "", "GiB", "")
    taken = round(gpu.memory_bytes * gpu.utilization)
    table.add("memory, as the driver reports it", f"{gpu.memory_bytes / GIB:.1f}")
    table.add(f"the engine takes {gpu.utilization:g} of it", f"{taken / GIB:.1f}")
    table.add("weights", f"{gpu.weight_bytes / GIB:.1f}")
    table.add("the engine's own, about", f"{gpu.overhead_bytes / GIB:.1f}")
    table.add("KV", f"{gpu.kv_bytes / GIB:.1f}", f"blocks of {binary(gpu.block_bytes)}")
    return table


def _choices(choices: tuple[ChoicePart, ...]) -> Sheet:
    found = choices[0].hit_share is not None
    table = Sheet(
        "One endpoint, by the kind of GPU",
        "--gpu",
        "GPUs",
        "weights each",
        "KV tokens, about",
        "prefill (tok/s)",
        "loads from CPU memory (tok/s)",
        *(["GPU tier finds again"] if found else []),
    )
    for choice in choices:
        tokens = (
            f"{choice.tokens_per_endpoint:,} ({choice.low_tokens_per_endpoint:,} to "
            f"{choice.high_tokens_per_endpoint:,})"
        )
        table.add(
            choice.gpu,
            str(choice.gpus_per_endpoint),
            binary(choice.weight_bytes),
            tokens,
            f"{choice.prefill_tokens_per_s:,.0f}",
            f"{choice.load_tokens_per_s:,.0f}",
            *([f"{choice.hit_share:.0%}"] if choice.hit_share is not None else []),
        )
    return table


def _tiers(report: SizeReport) -> Sheet:
    fleet = f"{report.endpoints} endpoint{'s' if report.endpoints > 1 else ''}"
    table = Sheet(
        "What the tiers hold", "tier", "GiB each", "tokens each", "blocks each", f"tokens, {fleet}", "said by"
    )
    for tier in report.tiers:
        table.add(
            tier.tier,
            "shared" if tier.source == "--storage" else f"{tier.bytes_per_endpoint / GIB:,.1f}",
            _tokens(tier),
            f"{tier.blocks_per_endpoint:,}" if tier.blocks_per_endpoint else "",
            f"{tier.fleet_tokens:,}",
            tier.source,
        )
    return table


def _tokens(tier: TierPart) -> str:
    if not tier.tokens_per_endpoint and tier.tier == "storage":
        return ""
    if tier.low_tokens_per_endpoint == tier.high_tokens_per_endpoint:
        return f"{tier.tokens_per_endpoint:,}"
    return f"{tier.tokens_per_endpoint:,} ({tier.low_tokens_per_endpoint:,} to {tier.high_tokens_per_endpoint:,})"


def _prices(prices: tuple[PricePart, ...]) -> Sheet:
    table = Sheet(
        f"A prefix of {prices[0].tokens:,} tokens, had back or computed again",
        "from",
        "at",
        "load",
        "compute",
        "all loading",
        "pays from",
        "verdict",
    )
    for price in prices:
        pays = {None: "never", 0: "the first token"}.get(
            price.break_even_tokens, f"{price.break_even_tokens or 0:,} tokens"
        )
        table.add(
            price.tier,
            f"{price.bytes_per_s / 1e9:,.3g} GB/s",
            seconds(price.load_s),
            seconds(price.recompute_s),
            seconds(price.shared_load_s),
            pays,
            verdict(price),
        )
    return table


def verdict(price: PricePart) -> str:
    """Return the verdict in a few words."""
    if not price.load:
        return "recompute"
    return "load" if price.shared_load_s <= price.recompute_s else "load, unless all do"


def _workload(workload: WorkloadPart) -> Iterator[RenderableType]:
    table = Sheet(
        f"Where the workload{' ' + workload.name if workload.name else ''} will live",
        "",
        "groups stay",
        "go anywhere",
        "one request",
    )
    for home in workload.homes:
        table.add(
            f"from the {home.tier} tier",
            f"{home.hit_share:.0%}",
            f"{home.scattered_hit_share:.0%}",
            seconds(home.request_s),
        )
    if workload.recomputed_share is not None and workload.scattered_recomputed_share is not None:
        table.add(
            "computed again",
            f"{workload.recomputed_share:.0%}",
            f"{workload.scattered_recomputed_share:.0%}",
            seconds(workload.recompute_s),
        )
        yield table
    per_group = (
        f"{workload.num_prompts_per_group} requests of {workload.question_len:,} + {workload.output_len:,} tokens"
    )
    yield Prose(
        f"{workload.num_groups} groups that share {workload.system_prompt_len:,} tokens each, {per_group}, "
        f"{workload.concurrency} at a time: {workload.shared_tokens:,} shared tokens, "
        f"{workload.working_set_tokens:,} in all "
        f"({binary(workload.working_set_bytes)}); {workload.active_tokens_per_endpoint:,} in use at a time on an "
        f"endpoint." + (" Shares are of all requests but each group's first." if workload.homes else "")
    )
    yield Prose(workload.sentence, "bold")


def _advice(report: SizeReport) -> Sheet:
    table = Sheet("Settings", "setting", "value", "why", sentences="why")
    for advice in report.advice:
        table.add(advice.setting, advice.value, advice.why)
    return table


def binary(size_bytes: float) -> str:
    """Format ``size_bytes`` in GiB, or in the smaller unit in which it is at least 1."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:,.1f} {name}" if unit == GIB else f"{size_bytes / unit:,.4g} {name}"
    return f"{size_bytes / 1024:,.4g} KiB"


def parameters(count: int) -> str:
    """Format ``count`` in billions, or in millions below one billion."""
    return f"{count / 1e9:,.1f} B" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def seconds(value: float) -> str:
    """Format ``value`` in the unit that reads best; empty for 0, which stands for unknown."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1000:.3g} ms" if value else ""
