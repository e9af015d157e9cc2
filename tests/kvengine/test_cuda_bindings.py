"""Checks of the CUDA code that need no GPU.

The real package has every function that is called, and accepts the arguments as they are passed. The kernel's logic is
compiled for the processor and run there. Where NVRTC is installed, the kernel is compiled for a GPU as well.
"""

from __future__ import annotations

import ast
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kvengine.cuda import bindings
from kvengine.cuda.bindings import CudaDriver
from kvengine.cuda.driver import DeviceError, Driver

ROOT = Path(__file__).parents[2]
SOURCE = Path(bindings.__file__)
KERNEL = ROOT / "kvengine" / "csrc" / "gather.cu"


def attributes(name: str) -> set[str]:
    """Return the attributes of ``self._cuda``, or of a module by that name, that the code uses."""
    found = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value
            if (isinstance(owner, ast.Name) and owner.id == name) or (
                name == "cuda" and isinstance(owner, ast.Attribute) and owner.attr == "_cuda"
            ):
                found.add(node.attr)
    return found


@pytest.mark.parametrize(("module", "name"), [("driver", "cuda"), ("nvrtc", "nvrtc")])
def test_every_name_that_is_used_is_in_the_package(module: str, name: str) -> None:
    package = pytest.importorskip(f"cuda.bindings.{module}", reason="the package cuda-bindings is not installed")
    used = attributes(name)
    assert len(used) > 5
    assert [each for each in sorted(used) if not hasattr(package, each)] == []


@pytest.mark.parametrize(
    ("enum", "members"),
    [
        ("CUresult", ["CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"]),
        ("CUstream_flags", ["CU_STREAM_NON_BLOCKING"]),
        ("CUevent_flags", ["CU_EVENT_DISABLE_TIMING"]),
        ("CUstreamCaptureMode", ["CU_STREAM_CAPTURE_MODE_RELAXED"]),
        ("CUmemcpySrcAccessOrder", ["CU_MEMCPY_SRC_ACCESS_ORDER_STREAM"]),
        (
            "CUdevice_attribute",
            [
                "CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
            ],
        ),
    ],
)
def test_every_member_that_is_used_is_in_its_enumeration(enum: str, members: list[str]) -> None:
    package = pytest.importorskip("cuda.bindings.driver", reason="the package cuda-bindings is not installed")
    text = SOURCE.read_text()
    for member in members:
        assert member in text
        assert hasattr(getattr(package, enum), member)


def unopened() -> CudaDriver:
    """Return a driver as if it had been opened, with invalid handles."""
    package = pytest.importorskip("cuda.bindings.driver", reason="the package cuda-bindings is not installed")
    driver = CudaDriver.__new__(CudaDriver)
    driver._cuda = package
    driver._context = driver._device = driver._module = driver._kernel = 1
    driver._priorities = {False: 0, True: -5}
    driver._batch = None
    driver._opener = 0
    driver._enter = lambda: None  # type: ignore[method-assign]
    return driver


CALLS = {
    "stream": lambda d: d.stream(urgent=True),
    "event": lambda d: d.event(),
    "destroy a stream": lambda d: d.destroy([1], []),
    "destroy an event": lambda d: d.destroy([], [1]),
    "record": lambda d: d.record(1, 2),
    "wait": lambda d: d.wait(1, 2),
    "reached": lambda d: d.reached(1),
    "block_until": lambda d: d.block_until(1),
    "synchronize": lambda d: d.synchronize(1),
    "copy": lambda d: d.copy(1, np.array([1]), np.array([2]), np.array([3])),
    "move": lambda d: d.move(1, 1 << 40, 3),
    "pin": lambda d: d.pin(1 << 40, 64),
    "unpin": lambda d: d.unpin(1 << 40),
    "device_memory": lambda d: d.device_memory(64),
    "host_memory": lambda d: d.host_memory(64),
    "free_device": lambda d: d.free_device(1 << 40),
    "free_host": lambda d: d.free_host(1 << 40),
    "close": lambda d: d.close(),
    "enter": lambda d: CudaDriver._enter(d),
    "find_batch": lambda d: d._find_batch(),
    "priorities": lambda d: d._call(d._cuda.cuCtxGetStreamPriorityRange),
    "attribute": lambda d: d._attribute(
        d._cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    ),
    "name": lambda d: d._call(d._cuda.cuDeviceGetName, 128, 0),
    "pci": lambda d: d._call(d._cuda.cuDeviceGetPCIBusId, 32, 0),
    "load": lambda d: d._do(d._cuda.cuModuleLoadData, b"code"),
    "function": lambda d: d._do(d._cuda.cuModuleGetFunction, 1, b"move_pieces"),
    "capture": lambda d: d._call(
        d._cuda.cuThreadExchangeStreamCaptureMode, d._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ),
}


def installed() -> bool:
    try:
        CudaDriver()
    except DeviceError as error:
        return "no driver of an NVIDIA GPU" not in str(error)
    return True


@pytest.mark.parametrize("name", CALLS)
def test_the_package_takes_each_call_as_far_as_to_the_driver_that_is_not_there(name: str) -> None:
    driver = unopened()
    if installed():
        pytest.skip("there is a driver here, and these handles lead nowhere; the contract tests use it")
    driver.version = 13000
    driver._threads = __import__("threading").local()
    with pytest.raises(RuntimeError, match="is an NVIDIA driver library"):
        CALLS[name](driver)  # type: ignore[no-untyped-call]


def test_a_machine_without_a_driver_is_refused_with_a_sentence() -> None:
    if installed():
        pytest.skip("there is a driver of an NVIDIA GPU here")
    with pytest.raises(DeviceError, match=r"no driver of an NVIDIA GPU is installed|cuda-bindings cannot be used"):
        CudaDriver()


def test_the_driver_is_one() -> None:
    wanted = {name for name in vars(Driver) if not name.startswith("_")}
    assert wanted <= set(dir(CudaDriver)) | {"name", "pci_address"}


def test_the_attributes_of_a_batch_are_laid_out_as_the_driver_wants_them() -> None:
    package = pytest.importorskip("cuda.bindings.driver", reason="the package cuda-bindings is not installed")
    attributes = package.CUmemcpyAttributes()
    attributes.srcAccessOrder = package.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    assert ctypes.string_at(attributes.getPtr(), 24) == bytes([1]) + bytes(23)


def test_a_batch_is_handed_over_without_a_copy_of_its_arrays() -> None:
    package = pytest.importorskip("cuda.bindings.driver", reason="the package cuda-bindings is not installed")
    seen = []

    @bindings._Batch
    def batch(*arguments: int) -> int:
        to, source, sizes, count, attributes, begins, kinds, refused, stream = arguments
        read = [np.frombuffer(ctypes.string_at(at, 8 * count), np.int64).tolist() for at in (to, source, sizes)]
        order = int.from_bytes(ctypes.string_at(attributes, 4), "little")
        seen.append((read, order, int.from_bytes(ctypes.string_at(begins, 8), "little"), kinds, stream))
        ctypes.memset(refused, 1, 1)
        return 1 if len(seen) > 1 else 0

    driver = unopened()
    driver._batch = batch
    driver._attributes = package.CUmemcpyAttributes()
    driver._attributes.srcAccessOrder = package.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    driver._from_the_first = ctypes.c_size_t(0)
    arrays = [np.arange(10, dtype=np.int64) + 10 * each for each in range(3)]
    driver.copy(7, *(each[2:5] for each in arrays))  # type: ignore[arg-type]
    assert seen == [([[2, 3, 4], [12, 13, 14], [22, 23, 24]], 1, 0, 1, 7)]
    with pytest.raises(DeviceError, match="strides"):
        driver.copy(7, *(each[::2] for each in arrays))  # type: ignore[arg-type]


# The kernel.

SHIM = """
#include <cstdint>
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
struct alignas(16) uint4 { unsigned x, y, z, w; };
#define __global__
#include "gather.cu"
extern "C" void all(const unsigned long long* table, int count, unsigned blocks, unsigned threads) {
  gridDim.x = blocks; blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) move_pieces(table, count);
}
"""


def test_the_kernel_moves_every_byte_and_no_other(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler on this machine")
    (tmp_path / "shim.cpp").write_text(SHIM)
    library = tmp_path / "shim.so"
    flags = ["-O1", "-shared", "-fPIC", "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{KERNEL.parent}"]
    subprocess.run([compiler, *flags, "-o", library, tmp_path / "shim.cpp"], check=True)
    run = ctypes.CDLL(str(library)).all
    random = np.random.default_rng(5)
    source = random.integers(0, 256, 1 << 18, dtype=np.uint8)
    target = np.zeros(1 << 18, dtype=np.uint8)
    expected = target.copy()
    rows = []
    to = source_at = 0
    for size in (16, 4096, 8192, 24_576, 48, 2048, 2064, 1, 17, 4097, 0, 1000, 16, 32):
        for shift in (0, 0, 1, 8):
            rows.append((target.ctypes.data + to + shift, source.ctypes.data + source_at, size))
            expected[to + shift : to + shift + size] = source[source_at : source_at + size]
            to += -(-(size + shift) // 16) * 16 + 16
            source_at = (source_at + size * 7 + 16) // 16 * 16 % (1 << 17)
    table = np.ascontiguousarray(np.array(rows, dtype=np.int64).T)
    run(ctypes.c_void_p(table.ctypes.data), len(rows), 3, 64)
    assert (target == expected).all()


def test_the_kernel_compiles_for_devices_from_turing_on() -> None:
    for architecture in ("sm_75", "sm_80", "sm_90", "sm_100"):
        try:
            code = bindings.compiled(architecture)
        except DeviceError as error:
            if "cannot be used" in str(error):
                pytest.skip(f"not compiled here: {error}")
            raise
        assert code.startswith(b"\x7fELF")
    with pytest.raises(DeviceError, match=r"does not compile for sm_12: .*invalid value"):
        bindings.compiled("sm_12")


def test_the_kernel_is_called_by_its_name() -> None:
    assert re.search(r'extern "C" __global__ void move_pieces\(', KERNEL.read_text())
    assert 'b"move_pieces"' in SOURCE.read_text()
