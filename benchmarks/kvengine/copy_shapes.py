"""The copies that ``bench_copy`` measures: fragments of one size, and the KV caches of published models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvengine.copiers.descriptors import HostPieces, cut
from kvengine.layout import Fragments, Layout, Page

KIB = 1024
BLOCK_TOKENS = 16
CHUNK_BLOCKS = 16
FRAGMENT_SIZES = tuple(each * KIB for each in (4, 8, 16, 24, 32, 64, 128, 256, 1024, 4096))


@dataclass(frozen=True, slots=True)
class Model:
    """A model's shape, from its published configuration, and how many workers share its KV heads."""

    name: str
    layers: int
    kv_heads: int
    head_size: int
    workers: int
    element_bytes: int = 2

    @property
    def page_bytes(self) -> int:
        """Size of one block in one layer of one worker: keys and values of 16 tokens."""
        return BLOCK_TOKENS * (self.kv_heads // self.workers) * self.head_size * 2 * self.element_bytes

    def layout(self, device: int, device_bytes: int) -> Layout:
        """Return a layout layer by layer, as in vLLM's attention backends, with as many blocks as fit."""
        chunk_bytes = self.page_bytes * self.layers * CHUNK_BLOCKS
        blocks = device_bytes // chunk_bytes * CHUNK_BLOCKS
        layer_bytes = self.page_bytes * blocks
        pages = [Page(device + each * layer_bytes, self.page_bytes, self.page_bytes) for each in range(self.layers)]
        return Layout(pages, blocks, CHUNK_BLOCKS)


MODELS = (
    Model("Qwen3-32B TP2", layers=64, kv_heads=8, head_size=128, workers=2),
    Model("Llama-3.3-70B TP4", layers=80, kv_heads=8, head_size=128, workers=4),
    Model("gpt-oss-120b", layers=36, kv_heads=8, head_size=64, workers=1),
    Model("Qwen3-0.6B", layers=28, kv_heads=8, head_size=128, workers=1),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One row: the jobs that are submitted together, each in its own part of both memories."""

    name: str
    fragment_bytes: int
    jobs: list[Fragments]
    """Jobs with neighboring fragments merged, as the engine submits them."""
    single: list[Fragments]
    """The same jobs with one fragment per block and layer."""

    @property
    def copied_bytes(self) -> int:
        return sum(int(each.sizes.sum()) for each in self.jobs)


def equal(size: int, device: int, host: int, room_bytes: int, job_bytes: int) -> Case:
    """Return fragments of one size, in order in host memory and without neighbors on the device."""
    jobs = []
    for begin in range(0, room_bytes - job_bytes + 1, job_bytes):
        at = np.arange(max(1, job_bytes // size), dtype=np.int64)
        elsewhere = np.concatenate((at[1::2], at[::2]))
        sizes = np.full(len(at), size, dtype=np.int64)
        jobs.append(Fragments(device + begin + elsewhere * size, host + begin + at * size, sizes))
    return Case(f"{size // KIB} KiB", size, jobs, jobs)


def of_model(model: Model, device: int, host: int, room_bytes: int, *, in_order: bool) -> Case:
    """Return jobs of 4 chunks each for all chunks that fit; blocks are scattered as in a busy engine, or in order as
    in a fresh one."""
    layout = model.layout(device, room_bytes)
    blocks = np.arange(layout.blocks)
    if not in_order:
        blocks = np.random.default_rng(0).permutation(layout.blocks)
    jobs = []
    slots = range(layout.blocks // CHUNK_BLOCKS)
    for begin in range(0, len(slots), 4):
        some = slots[begin : begin + 4]
        part = blocks[some[0] * CHUNK_BLOCKS : (some[-1] + 1) * CHUNK_BLOCKS]
        jobs.append(layout.fragments(part.tolist(), list(some), 0, host))
    single = [cut(each, HostPieces(host, model.page_bytes)) for each in jobs]
    order = "blocks in order" if in_order else "scattered blocks"
    return Case(f"{model.name}, {order}", model.page_bytes, jobs, single)
