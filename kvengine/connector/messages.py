"""The messages between the scheduler's side and the workers, sent once a step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from kvengine.copiers.base import JobId
from kvengine.jobs import Job

Key = TypeVar("Key", bound=Hashable)
Number = TypeVar("Number", int, float)


@dataclass
class Orders(KVConnectorMetadata):
    """The scheduler's orders to every worker for one step."""

    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Requests that wait for a load that could not be ordered: the workers report it as failed."""
    late: list[JobId] = field(default_factory=list)
    """Loads that take too long. A worker that has not ended such a load reports it to vLLM as failed, and goes on
    copying."""


class Readiness(NamedTuple):
    """How long host memory took to become ready in the slowest worker; 0 until known. No value ever decreases."""

    first_ready_s: float = 0.0
    ready_s: float = 0.0
    pin_s: float = 0.0
    longest_pin_s: float = 0.0
    """Time to pin the slowest piece: a step that launches kernels may have had to wait this long."""

    def or_slower(self, other: Readiness) -> Readiness:
        """Return the larger value of each field."""
        return Readiness(*map(max, self, other))


NOT_YET = Readiness()


@dataclass
class Reports(KVConnectorWorkerMetadata):
    """The workers' reports to the scheduler: how many workers finished or failed each job, and what they copied."""

    finished: dict[JobId, int] = field(default_factory=dict)
    """Number of workers that finished each job."""
    failed: dict[JobId, int] = field(default_factory=dict)
    """Number of workers in which each job failed."""
    ready_slots: int = 0
    """The smallest number of any worker."""
    capacity_slots: int = 0
    """The smallest number of any worker, including slots that are not ready yet."""
    copied_bytes: dict[str, int] = field(default_factory=dict)
    """By direction, the sum over all workers."""
    copy_seconds: dict[str, float] = field(default_factory=dict)
    """By direction, the sum over all workers."""
    readiness: Readiness = NOT_YET
    """Sent until all memory is ready, including the first report after that."""

    def ended(self) -> list[tuple[JobId, bool]]:
        """Return each job once for each worker that has ended it, and whether it succeeded there."""
        counts = ((self.finished, True), (self.failed, False))
        return [(job, ok) for jobs, ok in counts for job, workers in jobs.items() for _ in range(workers)]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Reports:
        """Combine the reports of two workers."""
        assert isinstance(other, Reports)  # noqa: S101 - vLLM passes on what the workers made
        return Reports(
            summed(self.finished, other.finished),
            summed(self.failed, other.failed),
            min(self.ready_slots, other.ready_slots),
            min(self.capacity_slots, other.capacity_slots),
            summed(self.copied_bytes, other.copied_bytes),
            summed(self.copy_seconds, other.copy_seconds),
            self.readiness.or_slower(other.readiness),
        )


def summed(one: dict[Key, Number], other: dict[Key, Number]) -> dict[Key, Number]:
    """Return the sum of two dictionaries, key by key."""
    total = dict(one)
    for key, value in other.items():
        total[key] = total[key] + value if key in total else value
    return total
