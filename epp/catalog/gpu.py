"""GPUs: their memory, and how fast they read it, compute, and exchange bytes with the host.

``memory_bytes`` is the memory that the driver makes available to a process, which is less than the GPU's name suggests:
the base of ``--gpu-memory-utilization``. FLOP/s are dense. The host link is the theoretical rate in one direction;
large copies reach ``LINK_EFFICIENCY`` of it.

Sources: NVIDIA's and AMD's data sheets. The makers print tensor FLOP/s with sparsity, which are twice as many.
Available memory: ``torch`` reports it in out-of-memory messages, as H100 79.1, L40S 44.4, T4 14.75, B200 178.35 GiB.
B200's 7.67 TB/s: pytorch/ao#4002. The links: PCIe 4 x16 32 GB/s, PCIe 5 x16 64 GB/s, NVLink-C2C 450 GB/s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 2**30
LINK_EFFICIENCY = 0.8
"""Source: 51.8 of 64 GB/s for batched copies of 64 KiB pages to an H100, vllm-project/vllm#42212."""
_PCIE4, _PCIE5, _C2C, _TERA = 32e9, 64e9, 450e9, 1e12


@dataclass(frozen=True, slots=True)
class Gpu:
    """The memory, rates and host link of one GPU."""

    name: str
    memory_bytes: int
    memory_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    """The same as ``bf16_flops`` if the hardware has no FP8."""
    link_bytes_per_s: float
    """To and from host memory, in each direction, in theory."""
    sustained: float = 1.0
    """The share of the FLOP/s that remains under a low power limit, relative to the share that other GPUs reach."""

    @property
    def load_bytes_per_s(self) -> float:
        """The rate of large copies from host memory."""
        return self.link_bytes_per_s * LINK_EFFICIENCY


def _gpu(
    name: str,
    memory_gib: float,
    tb_per_s: float,
    bf16_tera: float,
    fp8_tera: float,
    link: float,
    sustained: float = 1.0,
) -> Gpu:
    return Gpu(name, round(memory_gib * GIB), tb_per_s * _TERA, bf16_tera * _TERA, fp8_tera * _TERA, link, sustained)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("t4", 14.75, 0.320, 65, 65, _PCIE4 / 2),  # fp16; it has no bf16
        # 72 W. Source: Llama-3.1-8B, 15,376 tokens cold in 6.54 s (LMCache's page on CPU offload).
        _gpu("l4", 22.03, 0.300, 121, 242, _PCIE4, sustained=0.63),
        _gpu("a10g", 21.98, 0.600, 70, 70, _PCIE4),
        _gpu("rtx-4090", 23.64, 1.008, 165, 330, _PCIE4),
        _gpu("l40s", 44.40, 0.864, 362, 733, _PCIE4),
        _gpu("a100-40gb", 39.39, 1.555, 312, 312, _PCIE4),
        _gpu("a100", 79.15, 2.039, 312, 312, _PCIE4),
        _gpu("h100", 79.10, 3.35, 989, 1979, _PCIE5),
        _gpu("h100-pcie", 79.10, 2.0, 756, 1513, _PCIE5),
        _gpu("h100-nvl", 93.0, 3.9, 835, 1671, _PCIE5),
        _gpu("h200", 139.8, 4.8, 989, 1979, _PCIE5),
        _gpu("gh200", 94.5, 4.0, 989, 1979, _C2C),
        _gpu("gh200-144gb", 140.0, 4.9, 989, 1979, _C2C),
        _gpu("b200", 178.35, 7.67, 2250, 4500, _PCIE5),
        _gpu("gb200", 184.0, 8.0, 2500, 5000, _C2C / 2),  # two GPUs to one Grace
        _gpu("mi300x", 191.98, 5.3, 1307, 2614, _PCIE5),
    )
}


def find(name: str) -> Gpu | None:
    """Return the GPU called ``name``, or None; case, the maker's name and the form factor do not matter."""
    words = [word for word in name.strip().lower().replace(" ", "-").split("-") if word not in _MAKERS]
    while words and "-".join(words) not in GPUS:
        last = words.pop()
        if not _FORM.fullmatch(last):
            return None
    return GPUS.get("-".join(words))


_MAKERS = frozenset({"nvidia", "amd", "instinct", "geforce", "tensor", "core", "gpu"})
_FORM = re.compile(r"sxm\d?|\d+gb|hbm3e?")
