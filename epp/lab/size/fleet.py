"""The fleet to size: from flags, else from what an endpoint reports, else from the usual defaults."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from epp.catalog import gpu as gpus
from epp.catalog import models
from epp.catalog.gpu import GIB, Gpu
from epp.catalog.hugging_face import read_model
from epp.catalog.model import Model
from epp.catalog.sharing import shareable
from epp.errors import ConfigError
from epp.lab.size.endpoint import ReportedFacts
from epp.lab.size.layout import Layout, layout_of
from epp.lab.size.memory import GpuShare, Range, default_sequences, overhead_of, share_of
from epp.lab.size.options import SizeOptions
from epp.units import written_bytes

UTILIZATION, BLOCK_TOKENS = 0.9, 16
"""vLLM's own defaults."""
RAM_SHARE = 0.8
"""The largest share that kvengine takes of the memory available at its start (``kvengine/limits.py``)."""
ENGINE_RAM_BYTES = 4 * GIB
"""Host memory of the engine itself, per process: the server, and a worker for each GPU. A guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet of equal endpoints."""

    endpoints: int
    ranks: int
    ranks_given: bool
    model: Model | None
    gpu: Gpu | None
    block_tokens: int
    utilization: float
    kv_dtype_bytes: int | None
    """None is the model's own type."""
    layout: Layout | None
    share: GpuShare | None
    """None without a model or a GPU."""
    blocks: Range | None
    """Per endpoint; None if the number is unknown."""
    blocks_source: str
    gpu_keeps: bool = True
    """Whether GPU memory keeps prefixes for later requests, which it does not without vLLM's prefix caching."""
    token_bytes: float | None
    """KV of one token over all ranks."""
    cpu_bytes: int | None
    """Per endpoint; None if unknown."""
    cpu_tokens: int | None
    """As the endpoint reports it."""
    cpu_source: str
    ram_bytes: int | None
    chunk_tokens: int
    load_bytes_per_s: float | None
    """From host memory to all GPUs of an endpoint."""
    storage_bytes: int | None
    storage_bytes_per_s: float | None
    notes: tuple[str, ...] = ()

    @property
    def ram_for_kv_bytes(self) -> int | None:
        """What the given host memory leaves for KV."""
        if self.ram_bytes is None:
            return None
        return max(0, int((self.ram_bytes - (1 + self.ranks) * ENGINE_RAM_BYTES) * RAM_SHARE))


def fleet_of(options: SizeOptions, reported: ReportedFacts) -> Fleet:
    """Return the fleet. Raises: ConfigError with what was given, what there is, and what to do."""
    notes: list[str] = []
    model = model_of(options.model, reported, notes)
    gpu = gpu_of(options)
    ranks = options.ranks or 1
    if model is not None and (refusal := shareable(model, ranks)) is not None:
        raise ConfigError(refusal)
    block_tokens = options.block_tokens or reported.block_tokens or BLOCK_TOKENS
    utilization = options.utilization or reported.utilization or UTILIZATION
    dtype_bytes = (
        1 if "fp8" in (options.kv_dtype if options.kv_dtype != "auto" else reported.kv_dtype or "auto") else None
    )
    layout = layout_of(model, block_tokens, ranks, dtype_bytes) if model else None
    share, blocks, source = None, None, ""
    if model and gpu and layout:
        overhead = overhead_of(model, options.max_num_seqs or default_sequences(gpu))
        if options.overhead_bytes is not None:
            overhead = Range(*[options.overhead_bytes] * 3)
        share = share_of(gpu.memory_bytes, utilization, model, ranks, overhead)
        kv, block = share.kv, layout.block_bytes
        blocks, source = Range(kv.low // block, kv.best // block, kv.high // block), "estimated"
    known = options.gpu_blocks or reported.gpu_blocks
    if known:
        if options.gpu_blocks and share is not None and gpu is not None and layout is not None:
            _has_blocks(known, layout.block_bytes, gpu, ranks, share.weight_bytes)
        blocks, source = (
            Range(known, known, known),
            "--num-gpu-blocks-override" if options.gpu_blocks else "the endpoint",
        )
    elif share is not None and model is not None and gpu is not None:
        _has_room(model, gpu, ranks, utilization, share)
    token_bytes = reported.token_bytes
    if model is not None:
        computed = model.kv_bytes_per_token(dtype_bytes, ranks)
        if token_bytes and abs(token_bytes / computed - 1) > 0.01:
            notes.append(
                f"the endpoint says that a token takes {token_bytes:,.0f} bytes, and {model.name} of this shape takes "
                f"{computed:,}: is --tensor-parallel-size={ranks} right, and the model?"
            )
        token_bytes = computed
    if token_bytes is None and blocks is None:
        raise ConfigError(
            "nothing says what to size: give --model and --gpu, as in --model Qwen/Qwen3-32B --gpu h100, or "
            "--metrics-url of a running endpoint"
        )
    if not reported.prefix_caching:
        notes.append(
            "the endpoint runs with --no-enable-prefix-caching: its GPU memory holds as much as is said here while "
            "requests run, and finds nothing again for the next ones"
        )
    cpu_bytes, cpu_source = _cpu(options, reported, ranks)
    return Fleet(
        endpoints=options.endpoints,
        ranks=ranks,
        ranks_given=options.ranks is not None,
        model=model,
        gpu=gpu,
        block_tokens=block_tokens,
        utilization=utilization,
        kv_dtype_bytes=dtype_bytes,
        layout=layout,
        share=share,
        blocks=blocks,
        blocks_source=source,
        gpu_keeps=reported.prefix_caching,
        token_bytes=token_bytes,
        cpu_bytes=cpu_bytes,
        cpu_tokens=reported.cpu_tokens if cpu_source == "the endpoint" else None,
        cpu_source=cpu_source,
        ram_bytes=options.ram_bytes,
        chunk_tokens=max(options.chunk_tokens, block_tokens),
        load_bytes_per_s=_lane(options, gpu, ranks),
        storage_bytes=options.storage_bytes,
        storage_bytes_per_s=options.storage_bytes_per_s,
        notes=tuple(notes),
    )


def model_of(name: str | None, reported: ReportedFacts, notes: list[str]) -> Model | None:
    """Return the model named by the user or the endpoint. Raises: ConfigError for one that is not in the catalog."""
    if name is None:
        model = models.find(reported.model) if reported.model else None
        if reported.model and model is None:
            notes.append(
                f"the endpoint serves {reported.model}, whose shape is not known; give --model its config.json for "
                "times and advice"
            )
        return model
    path = Path(name)
    if path.suffix == ".json" or path.is_dir():
        return read_model(path)
    model = models.find(name)
    if model is None:
        known = {known.partition("/")[2].lower(): known for known in models.MODELS}
        near = get_close_matches(name.lower().partition("/")[2] or name.lower(), known, n=1)
        hint = f"did you mean {known[near[0]]}? Otherwise give" if near else "give"
        raise ConfigError(
            f"--model={name} is not known; {hint} its config.json, or the folder that holds one. Known by name: "
            f"{', '.join(known.partition('/')[2] for known in models.MODELS)}"
        )
    return model


def gpu_of(options: SizeOptions) -> Gpu | None:
    """Return the GPU named by the user. Raises: ConfigError for one that is not in the catalog."""
    if options.gpu is None:
        if options.gpu_memory_bytes is not None:
            raise ConfigError(
                f"--gpu-memory={written_bytes(options.gpu_memory_bytes)}: of which GPU? Give --gpu, too, which says "
                "how fast it is"
            )
        return None
    gpu = gpus.find(options.gpu)
    if gpu is None:
        raise ConfigError(f"--gpu={options.gpu} is not known; there are {', '.join(gpus.GPUS)}")
    if options.gpu_memory_bytes is None:
        return gpu
    return Gpu(
        gpu.name,
        options.gpu_memory_bytes,
        gpu.memory_bytes_per_s,
        gpu.bf16_flops,
        gpu.fp8_flops,
        gpu.link_bytes_per_s,
        gpu.sustained,
    )


def _has_blocks(blocks: int, block_bytes: int, gpu: Gpu, ranks: int, weight_bytes: int) -> None:
    """Check that the blocks and the weights fit into the GPU's whole memory. Raises: ConfigError if not."""
    room = gpu.memory_bytes - weight_bytes
    if blocks * block_bytes > room:
        raise ConfigError(
            f"--num-gpu-blocks-override={blocks}: blocks of {block_bytes / 2**20:.4g} MiB are "
            f"{blocks * block_bytes / GIB:,.1f} GiB on each of {ranks} {gpu.name}, which has "
            f"{gpu.memory_bytes / GIB:.1f} GiB, {weight_bytes / GIB:.1f} of them for weights: at most "
            f"{max(0, room) // block_bytes:,} fit; take the number from the engine's log, or leave it out"
        )


def _has_room(model: Model, gpu: Gpu, ranks: int, utilization: float, share: GpuShare) -> None:
    """Check that at least the most favourable estimate leaves memory for KV. Raises: ConfigError if not."""
    if share.kv.high:
        return
    needed = share.weight_bytes + share.overhead.best
    enough = next(
        (
            n
            for n in range(ranks + 1, 65)
            if shareable(model, n) is None and _fits(model, gpu, n, max(utilization, UTILIZATION), share.overhead.best)
        ),
        None,
    )
    do = f"--tensor-parallel-size={enough}" if enough else "a smaller or quantized model, or a larger GPU"
    raise ConfigError(
        f"{model.name} leaves no memory for KV: on each of {ranks} {gpu.name} it takes "
        f"{share.weight_bytes / GIB:.1f} GiB "
        f"of weights and the engine some {share.overhead.best / GIB:.1f} GiB, {needed / GIB:.1f} GiB together, of "
        f"{share.taken_bytes / GIB:.1f} GiB (--gpu-memory-utilization={utilization:g} of {gpu.memory_bytes / GIB:.1f} "
        f"GiB); take {do}"
    )


def _fits(model: Model, gpu: Gpu, ranks: int, utilization: float, overhead_bytes: int) -> bool:
    return gpu.memory_bytes * utilization > model.weight_bytes / ranks + overhead_bytes + GIB


def _cpu(options: SizeOptions, reported: ReportedFacts, ranks: int) -> tuple[int | None, str]:
    """Return the bytes of the CPU tier of one endpoint, and where that number comes from."""
    if options.cpu_bytes is not None:
        return options.cpu_bytes, "--cpu-bytes-to-use"
    if options.local_cpu_gib is not None:
        return round(options.local_cpu_gib * GIB) * ranks, "--max-local-cpu-size"
    if reported.cpu_bytes is not None:
        return reported.cpu_bytes, "the endpoint"
    if options.ram_bytes is not None:
        own_bytes = (1 + ranks) * ENGINE_RAM_BYTES
        if options.ram_bytes <= own_bytes:
            raise ConfigError(
                f"--ram={written_bytes(options.ram_bytes)} leaves nothing for KV, since the engine's own processes "
                f"take some {own_bytes / GIB:.0f} GiB; write more, or leave it out"
            )
        return int((options.ram_bytes - own_bytes) * RAM_SHARE), "--ram"
    return None, ""


def _lane(options: SizeOptions, gpu: Gpu | None, ranks: int) -> float | None:
    if options.host_bytes_per_s is not None:
        return options.host_bytes_per_s * ranks
    return gpu.load_bytes_per_s * ranks if gpu else None
