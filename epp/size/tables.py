"""The report for people: a few tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from epp.shapes.gpu import GIB
from epp.size.report import ChoicePart, GpuPart, ModelPart, PricePart, SizeReport, TierPart, WorkloadPart


def of_report(report: SizeReport) -> Iterator[RenderableType]:
    """The whole report, part by part."""
    if report.model is not None:
        yield _model(report.model, report.gpu)
    if report.gpu is not None:
        yield _memory(report.gpu)
    if report.choices:
        yield _choices(report.choices)
    if report.tiers:
        yield _tiers(report)
    if report.prices:
        yield _prices(report.prices)
    if report.workload is not None:
        yield from _workload(report.workload)
    if report.advice:
        yield _advice(report)
    for note in report.notes:
        yield Text(f"• {note}", style="dim")


def _table(title: str, *columns: str, wide: str = "") -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 or column == wide else "right", no_wrap=column != wide)
    return table


def _model(model: ModelPart, gpu: GpuPart | None) -> Text:
    windows = f" ({model.window_layers} with a window)" if model.window_layers else ""
    active = (
        f", {model.active_parameters / 1e9:.1f} B per token" if model.active_parameters < model.parameters * 0.8 else ""
    )
    spread = f" over {gpu.per_endpoint} GPUs" if gpu is not None and gpu.per_endpoint > 1 else ""
    return Text.assemble(
        (model.name, "bold"),
        f": {model.parameters / 1e9:.1f} B parameters{active}, weights {gib(model.weight_bytes)}; {model.layers} layers"
        f"{windows}, {model.kv_heads} KV heads of {model.head_dim}.\nKV of a token: "
        f"{model.kv_bytes_per_token / 1024:,.4g} "
        f"KiB{spread}, in {8 * model.kv_dtype_bytes} bits.\n",
    )


def _memory(gpu: GpuPart) -> Table:
    table = _table(f"One of {gpu.per_endpoint} {gpu.name} per endpoint", "", "GiB", "")
    taken = round(gpu.memory_bytes * gpu.utilization)
    table.add_row("memory, as the driver reports it", f"{gpu.memory_bytes / GIB:.1f}")
    table.add_row(f"the engine takes {gpu.utilization:g} of it", f"{taken / GIB:.1f}")
    table.add_row("weights", f"{gpu.weight_bytes / GIB:.1f}")
    table.add_row("the engine's own, about", f"{gpu.overhead_bytes / GIB:.1f}")
    table.add_row("KV", f"{gpu.kv_bytes / GIB:.1f}", f"blocks of {gpu.block_bytes / 2**20:.4g} MiB")
    table.add_section()
    return _spaced(table)


def _choices(choices: tuple[ChoicePart, ...]) -> Table:
    found = choices[0].hit_share is not None
    table = _table(
        "One endpoint, by the kind of GPU",
        "--gpu",
        "GPUs",
        "weights each",
        "KV tokens, about",
        "prefill",
        "loads from CPU memory",
        *(["GPU tier finds again"] if found else []),
    )
    for choice in choices:
        tokens = (
            f"{choice.tokens_per_endpoint:,} ({choice.low_tokens_per_endpoint:,} to "
            f"{choice.high_tokens_per_endpoint:,})"
        )
        table.add_row(
            choice.gpu,
            str(choice.gpus_per_endpoint),
            gib(choice.weight_bytes),
            tokens,
            f"{choice.prefill_tokens_per_s:,.0f} tokens/s",
            f"{choice.load_tokens_per_s:,.0f} tokens/s",
            *([f"{choice.hit_share:.0%}"] if choice.hit_share is not None else []),
        )
    return _spaced(table)


def _tiers(report: SizeReport) -> Table:
    fleet = f"{report.endpoints} endpoint{'s' if report.endpoints > 1 else ''}"
    table = _table(
        "What the tiers hold", "tier", "GiB each", "tokens each", "blocks each", f"tokens, {fleet}", "said by"
    )
    for tier in report.tiers:
        table.add_row(
            tier.tier,
            "shared" if tier.source == "--storage" else f"{tier.bytes_per_endpoint / GIB:,.1f}",
            _tokens(tier),
            f"{tier.blocks_per_endpoint:,}" if tier.blocks_per_endpoint else "",
            f"{tier.fleet_tokens:,}",
            tier.source,
        )
    return _spaced(table)


def _tokens(tier: TierPart) -> str:
    if not tier.tokens_per_endpoint and tier.tier == "storage":
        return ""
    if tier.low_tokens_per_endpoint == tier.high_tokens_per_endpoint:
        return f"{tier.tokens_per_endpoint:,}"
    return f"{tier.tokens_per_endpoint:,} ({tier.low_tokens_per_endpoint:,} to {tier.high_tokens_per_endpoint:,})"


def _prices(prices: tuple[PricePart, ...]) -> Table:
    table = _table(
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
        table.add_row(
            price.tier,
            f"{price.bytes_per_s / 1e9:,.3g} GB/s",
            seconds(price.load_s),
            seconds(price.recompute_s),
            seconds(price.shared_load_s),
            pays,
            verdict(price),
        )
    return _spaced(table)


def verdict(price: PricePart) -> str:
    """In a few words."""
    if not price.load:
        return "recompute"
    return "load" if price.shared_load_s <= price.recompute_s else "load, unless all do"


def _workload(workload: WorkloadPart) -> Iterator[RenderableType]:
    table = _table(
        f"Where the workload{' ' + escape(workload.name) if workload.name else ''} will live",
        "",
        "groups stay",
        "go anywhere",
        "one request",
    )
    for home in workload.homes:
        table.add_row(
            f"from the {home.tier} tier",
            f"{home.hit_share:.0%}",
            f"{home.scattered_hit_share:.0%}",
            seconds(home.request_s),
        )
    if workload.recomputed_share is not None and workload.scattered_recomputed_share is not None:
        table.add_row(
            "computed again",
            f"{workload.recomputed_share:.0%}",
            f"{workload.scattered_recomputed_share:.0%}",
            seconds(workload.recompute_s),
        )
        yield table
    per_group = (
        f"{workload.num_prompts_per_group} requests of {workload.question_len:,} + {workload.output_len:,} tokens"
    )
    yield Text(
        f"{workload.num_groups} groups that share {workload.system_prompt_len:,} tokens each, {per_group}, "
        f"{workload.concurrency} at a time: {workload.shared_tokens:,} shared tokens, "
        f"{workload.working_set_tokens:,} in all "
        f"({gib(workload.working_set_bytes)}); {workload.active_tokens_per_endpoint:,} in use at a time on an "
        f"endpoint." + (" Shares are of all requests but each group's first." if workload.homes else "")
    )
    yield Text(f"{workload.sentence}\n", style="bold")


def _advice(report: SizeReport) -> Table:
    table = _table("Settings", "setting", "value", "why", wide="why")
    for advice in report.advice:
        table.add_row(advice.setting, advice.value, advice.why)
    return _spaced(table)


def _spaced(table: Table) -> Table:
    table.caption = " "  # an empty line
    return table


def gib(size_bytes: float) -> str:
    """``size_bytes`` in GiB."""
    return f"{size_bytes / GIB:,.1f} GiB"


def seconds(value: float) -> str:
    """``value`` in the unit that reads best; empty for 0, which stands for unknown."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1000:.3g} ms" if value else ""
