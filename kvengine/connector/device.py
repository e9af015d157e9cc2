"""The device that this worker's tensors are on, and a copier for it that has passed a check."""

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
"""How long the start waits for the first piece of host memory. A guess: about 50 ms are usual."""
SCRATCH_BYTES = 1 << 20
"""Most bytes that are copied to check a ``HostCopier``."""


def driver_of(tensor: torch.Tensor) -> Driver | None:
    """Return the driver of the tensor's device; None for the CPU.

    Raises: Unsupported naming the device; DeviceError.
    """
    kind = tensor.device.type
    if kind == "cpu":
        return None
    if kind != "cuda" or torch.version.cuda is None:
        raise Unsupported(f"KV cache on the device {tensor.device}: only CUDA's and the processor's are kept yet")
    return CudaDriver(tensor.device.index or 0)


def copier_for(driver: Driver | None, tensor: torch.Tensor, arena: Arena) -> Copier:
    """Return a copier for the device of ``tensor``, which ``driver`` drives. The arena is started and still empty.

    Raises: NoMemory when no part of the arena becomes ready; DeviceError when copies are refused or incorrect.
    """
    ready = arena.wait_for_first(FIRST_PIECE_S)
    if not ready:
        raise NoMemory(f"none of {arena.slots:,} slots of host memory could be made ready")
    if driver is not None:
        device = tensor.device
        # vLLM's compute stream, which may change from call to call.
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
