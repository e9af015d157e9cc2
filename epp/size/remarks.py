"""What a reader of the numbers should know about them."""

from __future__ import annotations

from epp.shapes.gpu import GIB
from epp.size.fleet import Fleet


def remarks_on(fleet: Fleet) -> list[str]:
    """One sentence each."""
    remarks: list[str] = []
    model, layout, blocks = fleet.model, fleet.layout, fleet.blocks
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
    if fleet.share is not None and fleet.ram_bytes is not None and fleet.cpu_source == "--ram":
        remarks.append(
            f"of {fleet.ram_bytes / GIB:,.0f} GiB host memory, {(fleet.cpu_bytes or 0) / GIB:,.1f} GiB are taken for "
            f"KV: "
            "80% of what the engine's own processes leave, some 4 GiB each."
        )
    return remarks
