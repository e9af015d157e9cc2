"""Which device this worker's tensors are on, and a copier for it that has been seen to work."""

from __future__ import annotations

import logging

import numpy as np
import torch

from kvengine.arena import PIECE_BYTES, Arena
from kvengine.copiers import Copier, HostCopier, choice
from kvengine.copiers.descriptors import HostPieces
from kvengine.copiers.verify import difference
from kvengine.cuda.bindings import CudaDriver
from kvengine.cuda.driver import DeviceError, Driver, Stream
from kvengine.errors import NoMemory, Unsupported

log = logging.getLogger(__name__)

FIRST_PIECE_S = 60.0
"""How long a start waits for memory to copy through. A guess: it takes some 50 ms where nothing is wrong."""
SCRATCH_BYTES = 1 << 20


def driver_of(tensor: torch.Tensor) -> Driver | None:
    """None for the processor itself. Raises: Unsupported naming the device; DeviceError."""
    kind = tensor.device.type
    if kind == "cpu":
        return None
    if kind != "cuda" or torch.version.cuda is None:
        raise Unsupported(f"KV cache on the device {tensor.device}: only CUDA's and the processor's are kept yet")
    return CudaDriver(tensor.device.index or 0)


def copier_for(driver: Driver | None, tensor: torch.Tensor, arena: Arena) -> Copier:
    """For the device of ``tensor``, which ``driver`` drives. The arena has been started, and nothing is in it yet.

    Raises: NoMemory when no part of the arena becomes ready; DeviceError when copies are refused, or not right.
    """
    ready = arena.wait_for_first(FIRST_PIECE_S)
    if not ready:
        raise NoMemory(f"none of {arena.slots:,} slots of host memory could be made ready")
    if driver is not None:
        device = tensor.device
        # The stream on which vLLM computes; it may be another one at another time.
        compute = lambda: Stream(torch.cuda.current_stream(device).cuda_stream)  # noqa: E731
        return choice.opened(driver, compute, HostPieces(arena.address, PIECE_BYTES), ready)
    copier = HostCopier()
    size = min(ready // 2, SCRATCH_BYTES)
    scratch = np.zeros(size, dtype=np.uint8)
    wrong = difference(copier, scratch.ctypes.data, arena.address, size)
    if wrong is not None:
        copier.close()
        raise DeviceError(f"copies in host memory: {wrong}")
    return copier
