"""The driver of an NVIDIA GPU, through the package ``cuda-bindings``, which torch depends on.

All calls use the device's primary context, which torch uses, too. Each calling thread enters that context. Except for
the thread that opened the driver, it is also exempted from the checks during another thread's graph capture, since
pinning and querying events are not part of that graph.

Source: the CUDA Driver API reference; ``cuMemcpyBatchAsync`` with the signature that it has had since 12.8.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

from kvengine.cuda.driver import DeviceError, Event, Stream
from kvengine.layout import Addresses

log = logging.getLogger(__name__)

BATCH_SINCE = 12080
"""The first driver version with batched copies."""
KERNEL_BLOCKS = 16
"""Thread blocks of the kernel that moves pieces."""
KERNEL_THREADS = 256
"""Threads per block: in all, enough to outrun the bus several times, and a tenth of a large device. A guess."""

_Batch = ctypes.CFUNCTYPE(
    ctypes.c_uint,
    ctypes.c_void_p,  # destinations
    ctypes.c_void_p,  # sources
    ctypes.c_void_p,  # sizes
    ctypes.c_size_t,
    ctypes.c_void_p,  # attributes, and the index in the batch from which each applies
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,  # the index of a refused copy
    ctypes.c_void_p,  # stream
)


class CudaDriver:
    """Implements ``Driver`` for one NVIDIA GPU."""

    def __init__(self, ordinal: int = 0) -> None:
        """Open the device number ``ordinal``.

        Raises: DeviceError when the device, the package or the driver is missing.
        """
        try:
            from cuda.bindings import driver as cuda  # not needed on a machine without a GPU

            self._cuda = cuda
            self._call(cuda.cuInit, 0)
            self._device = self._call(cuda.cuDeviceGet, ordinal)
        except ImportError as error:
            raise DeviceError(f"the package cuda-bindings cannot be used: {error}") from error
        except RuntimeError as error:  # raised by pathfinder when libcuda is missing
            raise DeviceError(f"no driver of an NVIDIA GPU is installed: {error}") from error
        self.name = self._call(cuda.cuDeviceGetName, 128, self._device).split(b"\0")[0].decode()
        self.pci_address: str | None = self._call(cuda.cuDeviceGetPCIBusId, 32, self._device).split(b"\0")[0].decode()
        attributes = cuda.CUdevice_attribute
        if not self._attribute(attributes.CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM):
            raise DeviceError(f"{self.name} knows pinned memory by other addresses than the host's")
        self.version: int = self._call(cuda.cuDriverGetVersion)
        self._opener = threading.get_ident()
        self._threads = threading.local()
        self._context = self._call(cuda.cuDevicePrimaryCtxRetain, self._device)
        self._kernel: Any = None
        self._module: Any = None
        self._batch = self._find_batch()
        self._attributes = cuda.CUmemcpyAttributes()
        self._attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        self._from_the_first = ctypes.c_size_t(0)
        self._enter()
        least, greatest = self._call(cuda.cuCtxGetStreamPriorityRange)
        self._priorities = {False: least, True: greatest}

    def stream(self, *, urgent: bool) -> Stream:
        """Create a stream, urgent or not; implements ``Driver``."""
        flags = int(self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return Stream(int(self._do(self._cuda.cuStreamCreateWithPriority, flags, self._priorities[urgent])))

    def event(self) -> Event:
        """Create an event without timing; implements ``Driver``."""
        return Event(int(self._do(self._cuda.cuEventCreate, int(self._cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING))))

    def destroy(self, streams: list[Stream], events: list[Event]) -> None:
        """Destroy events and streams; implements ``Driver``."""
        for event in events:
            self._do(self._cuda.cuEventDestroy, event)
        for stream in streams:
            self._do(self._cuda.cuStreamDestroy, stream)

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event on a stream; implements ``Driver``."""
        self._do(self._cuda.cuEventRecord, event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        """Make a stream wait for an event; implements ``Driver``."""
        self._do(self._cuda.cuStreamWaitEvent, stream, event, 0)

    def reached(self, event: Event) -> bool:
        """Query an event without waiting; implements ``Driver``."""
        self._enter()
        (status,) = self._cuda.cuEventQuery(event)
        if status == self._cuda.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._check(status, "cuEventQuery")
        return True

    def block_until(self, event: Event) -> None:
        """Wait for an event; implements ``Driver``."""
        self._do(self._cuda.cuEventSynchronize, event)

    def synchronize(self, stream: Stream) -> None:
        """Wait for a stream; implements ``Driver``."""
        self._do(self._cuda.cuStreamSynchronize, stream)

    def copy(self, stream: Stream, to: Addresses, source: Addresses, sizes: Addresses) -> None:
        """Begin copies in one batch, or one by one with an old driver; implements ``Driver``.

        The driver reads the arrays in place: no descriptor is created in Python.
        """
        self._enter()
        if self._batch is None:
            for each in zip(to.tolist(), source.tolist(), sizes.tolist(), strict=True):
                self._call(self._cuda.cuMemcpyAsync, *each, stream)
            return
        for array in (to, source, sizes):
            if not array.flags.c_contiguous or array.dtype.itemsize != ctypes.sizeof(ctypes.c_size_t):
                raise DeviceError(f"an array of copies with strides {array.strides} and numbers of {array.dtype}")
        refused = ctypes.c_size_t(0)
        status = self._batch(
            to.ctypes.data, source.ctypes.data, sizes.ctypes.data, len(sizes), self._attributes.getPtr(),
            ctypes.addressof(self._from_the_first), 1, ctypes.addressof(refused), stream,
        )  # fmt: skip
        if status != 0:
            self._check(self._cuda.CUresult(status), f"cuMemcpyBatchAsync, copy {refused.value} of {len(sizes)},")

    def move(self, stream: Stream, table: int, count: int) -> None:
        """Launch the kernel that moves pieces; implements ``Driver``."""
        arguments = ((table, count), (ctypes.c_void_p, ctypes.c_int))
        self._do(
            self._cuda.cuLaunchKernel, self._kernel, KERNEL_BLOCKS, 1, 1, KERNEL_THREADS, 1, 1, 0, stream, arguments, 0
        )

    def can_move(self) -> str | None:
        """Compile and load the kernel for this device; implements ``Driver``."""
        try:
            if self._kernel is None:
                attributes = self._cuda.CUdevice_attribute
                major = self._attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
                minor = self._attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
                self._module = self._do(self._cuda.cuModuleLoadData, compiled(f"sm_{major}{minor}"))
                self._kernel = self._do(self._cuda.cuModuleGetFunction, self._module, b"move_pieces")
        except DeviceError as error:
            return str(error)
        return None

    def pin(self, address: int, size_bytes: int) -> None:
        """Register host memory with CUDA; implements ``Driver``."""
        self._do(self._cuda.cuMemHostRegister, address, size_bytes, self._cuda.CU_MEMHOSTREGISTER_PORTABLE)

    def unpin(self, address: int) -> None:
        """Unregister host memory from CUDA; implements ``Driver``."""
        self._do(self._cuda.cuMemHostUnregister, address)

    def device_memory(self, size_bytes: int) -> int:
        """Allocate memory on the device; implements ``Driver``."""
        return int(self._do(self._cuda.cuMemAlloc, size_bytes))

    def host_memory(self, size_bytes: int) -> int:
        """Allocate pinned host memory; implements ``Driver``."""
        return int(self._do(self._cuda.cuMemHostAlloc, size_bytes, self._cuda.CU_MEMHOSTALLOC_PORTABLE))

    def free_device(self, address: int) -> None:
        """Free memory on the device; implements ``Driver``."""
        self._do(self._cuda.cuMemFree, address)

    def free_host(self, address: int) -> None:
        """Free pinned host memory; implements ``Driver``."""
        self._do(self._cuda.cuMemFreeHost, address)

    def close(self) -> None:
        """Unload the kernel and release the context; implements ``Driver``."""
        try:
            if self._module is not None:
                self._do(self._cuda.cuModuleUnload, self._module)
            self._call(self._cuda.cuDevicePrimaryCtxRelease, self._device)
        except DeviceError as error:
            log.warning("%s stays open until the process ends: %s", self.name, error)
        self._kernel = self._module = None

    def _find_batch(self) -> Callable[..., int] | None:
        if self.version < BATCH_SINCE:
            log.warning("the driver of %s is older than CUDA 12.8: copies begin one by one", self.name)
            return None
        pointer, _ = self._call(self._cuda.cuGetProcAddress, b"cuMemcpyBatchAsync", BATCH_SINCE, 0)
        return _Batch(int(pointer))

    def _attribute(self, attribute: Any) -> int:
        return int(self._call(self._cuda.cuDeviceGetAttribute, attribute, self._device))

    def _enter(self) -> None:
        """Make the calling thread enter the context, once per thread."""
        if getattr(self._threads, "inside", False):
            return
        self._call(self._cuda.cuCtxSetCurrent, self._context)
        if threading.get_ident() != self._opener:
            mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            self._call(self._cuda.cuThreadExchangeStreamCaptureMode, mode)
        self._threads.inside = True

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._enter()
        return self._call(function, *arguments)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        status, *results = function(*arguments)
        self._check(status, function.__name__)
        return results[0] if len(results) == 1 else results

    def _check(self, status: Any, what: str) -> None:
        if status != self._cuda.CUresult.CUDA_SUCCESS:
            _, name = self._cuda.cuGetErrorName(status)
            _, text = self._cuda.cuGetErrorString(status)
            raise DeviceError(f"{what} failed: {(name or b'').decode()}, {(text or b'').decode()}")


def compiled(architecture: str) -> bytes:
    """Return the kernel's machine code for ``architecture`` ("sm_90").

    Raises: DeviceError with the compiler's message.
    """
    source = resources.files("kvengine").joinpath("csrc/gather.cu").read_bytes()
    try:
        from cuda.bindings import nvrtc

        status, program = nvrtc.nvrtcCreateProgram(source, b"gather.cu", 0, [], [])
    except (ImportError, RuntimeError) as error:
        raise DeviceError(f"the run-time compiler (libnvrtc) cannot be used: {error}") from error
    fine = nvrtc.nvrtcResult.NVRTC_SUCCESS
    if status != fine:
        raise DeviceError(f"nvrtcCreateProgram failed: {status}")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={architecture}".encode()])
        if status != fine:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            words = b" " * size
            nvrtc.nvrtcGetProgramLog(program, words)
            raise DeviceError(f"gather.cu does not compile for {architecture}: {status}, {words.decode().strip()}")
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        code: bytes = b" " * size
        (status,) = nvrtc.nvrtcGetCUBIN(program, code)
        if status != fine:
            raise DeviceError(f"nvrtcGetCUBIN failed: {status}")
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)
