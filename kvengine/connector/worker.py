"""One worker's side: its arena, its copier, and the jobs that use them."""

from __future__ import annotations

import logging

import torch

from kvengine.arena import Arena
from kvengine.connector.device import copier_for, driver_of
from kvengine.connector.geometry import Geometry
from kvengine.connector.messages import Orders, Readiness, Reports
from kvengine.copiers import CheckedCopier, Copier
from kvengine.copiers.base import JobId
from kvengine.cuda.driver import Driver
from kvengine.errors import KVEngineError, Unsupported
from kvengine.jobs import Job
from kvengine.layout import Layout, Page
from kvengine.limits import GIB, grant
from kvengine.numa import cpus_near

log = logging.getLogger(__name__)


class Worker:
    """One worker's half of the connector. Owner: the worker's main thread."""

    def __init__(self, shape: Geometry, *, verify: bool = False, logs_memory: bool = True) -> None:
        """``verify``: check loads against checksums; ``logs_memory``: log how much host memory each worker has."""
        self._shape = shape
        self._verify = verify
        self._logs_memory = logs_memory
        self._layout: Layout | None = None
        self._arena: Arena | None = None
        self._copier: Copier | None = None
        self._driver: Driver | None = None
        self._open: set[JobId] = set()
        self._loads: dict[JobId, str] = {}
        self._refused: set[str] = set()
        """Requests whose loads will be reported as failed."""
        self._reports = Reports()
        self._all_ready = False
        """Whether the scheduler has received the final readiness."""

    def register(self, caches: dict[str, torch.Tensor]) -> None:
        """Take over the KV cache that vLLM has allocated. Raises: Unsupported when its layout is unknown.

        Missing host memory must not keep the engine from serving: nothing is stored then, and an error is logged.
        """
        shape = self._shape
        self._caches = list(caches.values())  # keeps the tensors' memory allocated as long as this worker exists
        pages = [page_of(name, tensor) for name, tensor in caches.items()]
        layout = Layout(pages, self._caches[0].shape[0], shape.chunk_blocks)
        if layout.block_bytes != shape.block_bytes:
            raise Unsupported(
                f"a block takes {layout.block_bytes:,} bytes in this worker's tensors and {shape.block_bytes:,} by the "
                "engine's own account; this layout of the KV cache is not known"
            )
        try:
            self._driver = driver = driver_of(self._caches[0])
            requested_bytes = shape.slots * layout.slot_bytes
            granted = grant(requested_bytes, workers_here=shape.workers_here, pinned=driver is not None)
            if granted.sentence is not None:
                log.warning("%s", granted.sentence)
            near = cpus_near(driver.pci_address) if driver is not None else frozenset()
            self._arena = Arena(granted.size_bytes // layout.slot_bytes, layout.slot_bytes, driver, near)
            self._arena.start()
            copier = self.make_copier(driver, self._arena)
            self._arena.end_before(copier.close)
            if self._verify:
                copier = CheckedCopier(copier, self._arena.address, self._arena.slot_bytes)
                self._arena.end_before(copier.close)
            self._copier = copier
            if self._logs_memory:
                log.info("%s", memory_line(shape, self._arena.slots))
        except Unsupported:
            raise
        except KVEngineError as error:
            log.error("nothing is kept in host memory: %s", error)  # noqa: TRY400 - the message is complete
        except Exception:  # an unexpected driver error must not keep the engine from serving
            log.exception("nothing is kept in host memory")
        if self._copier is None:
            self.close()
            return
        self._layout = layout

    def make_copier(self, driver: Driver | None, arena: Arena) -> Copier:
        """Return a copier for this worker's tensors.

        Raises: KVEngineError when their device does not copy correctly.
        """
        return copier_for(driver, self._caches[0], arena)

    def load(self, orders: Orders) -> None:
        """Begin this step's loads."""
        self._refused.update(orders.refused)
        self._refused.update(self._loads.pop(job) for job in orders.late if job in self._loads)
        for job in orders.loads:
            self._loads[job.id] = job.request_id
            self._submit(job)

    def store(self, orders: Orders) -> None:
        """Begin this step's stores, after the kernels that compute their blocks have been launched."""
        for job in orders.stores:
            self._submit(job)

    def finished(self) -> tuple[set[str], set[str]]:
        """Return the requests whose loads have ended since the last call, and those among them whose loads failed."""
        failed, self._refused = self._refused, set()
        ended = set(failed)
        if self._copier is not None:
            try:
                self._take(self._copier)
            except Exception:
                log.exception("nothing is copied from now on; the engine serves on without")
                self.close()
        for job in [job for job in (*self._reports.finished, *self._reports.failed) if job in self._loads]:
            request_id = self._loads.pop(job)
            ended.add(request_id)
            if job in self._reports.failed:
                failed.add(request_id)
        return ended, failed

    def reports(self) -> Reports:
        """Return the reports for the scheduler, and begin new ones."""
        reports, self._reports = self._reports, Reports()
        if self._arena is not None:
            reports.ready_slots, reports.capacity_slots = self._arena.ready_slots, self._arena.attainable_slots
            if not self._all_ready:
                seen = self._arena.statistics()
                self._all_ready = seen.all_ready_s is not None
                reports.readiness = Readiness(
                    seen.first_ready_s or 0.0, seen.all_ready_s or 0.0, seen.pin_total_s, seen.pin_max_s
                )
        return reports

    def close(self) -> None:
        """Release everything; jobs that have not ended fail. Never raises. The second call does nothing."""
        copier, arena, self._copier, self._arena = self._copier, self._arena, None, None
        try:
            if copier is not None:
                copier.close()
                self._take(copier)
            for job in list(self._open):
                self._report(job, ok=False)
        except Exception:  # jobs that may still run are not reported as ended
            log.exception("what the copier did at its end is not known")
        if arena is not None:
            arena.close()
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _submit(self, job: Job) -> None:
        layout, arena, copier = self._layout, self._arena, self._copier
        self._open.add(job.id)
        if layout is None or arena is None or copier is None:
            self._report(job.id, ok=False)
            return
        try:
            fragments = layout.fragments(job.blocks, job.slots, job.first, arena.address)
            copier.submit(job.id, job.direction, fragments)
        except Exception:  # whatever the error is, the scheduler waits for this job
            log.exception("%s %d cannot be done", job.direction.value, job.id)
            self._report(job.id, ok=False)

    def _take(self, copier: Copier) -> None:
        """Collect the jobs that have ended."""
        for done in copier.poll():
            self._report(done.job, ok=done.ok)
            way, reports = done.direction.value, self._reports
            reports.copied_bytes[way] = reports.copied_bytes.get(way, 0) + done.copied_bytes
            reports.copy_seconds[way] = reports.copy_seconds.get(way, 0.0) + done.seconds

    def _report(self, job: JobId, *, ok: bool) -> None:
        """Report a job once: the scheduler would attribute a second report to another worker, which may still copy."""
        if job not in self._open:
            return
        self._open.remove(job)
        counts = self._reports.finished if ok else self._reports.failed
        counts[job] = counts.get(job, 0) + 1


def memory_line(shape: Geometry, slots: int) -> str:
    """Return how much host memory there is, in every unit that a setting for it can have."""
    blocks = slots * shape.chunk_blocks
    each = slots * shape.slot_bytes
    return (
        f"host memory for KV: per worker {each / GIB:.2f} GiB ({each:,} bytes, {blocks:,} blocks); per instance of "
        f"{shape.workers} worker{'s' if shape.workers > 1 else ''} {each * shape.workers / GIB:.2f} GiB "
        f"({each * shape.workers:,} bytes, {blocks:,} blocks of {shape.block_tokens} tokens), in chunks of "
        f"{shape.chunk_tokens} tokens"
    )


def page_of(name: str, tensor: torch.Tensor) -> Page:
    """Return where a layer's blocks lie. Shapes: [blocks, heads, tokens, content], strided.

    Raises: Unsupported when a block is not one contiguous piece of memory.
    """
    item = tensor.element_size()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True))
    if extent != tensor[0].numel():
        raise Unsupported(
            f"layer {name}: a block of shape {tuple(tensor.shape[1:])} with strides {tensor.stride()[1:]} is not one "
            "piece of memory; choose another KV cache layout"
        )
    return Page(tensor.data_ptr(), tensor.stride(0) * item, extent * item)
