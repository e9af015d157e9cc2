"""What the scheduler's side and the workers' tell each other, once a step."""

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
    """To every worker: the jobs of this step."""

    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Requests that wait for a load that could not be ordered: the workers report it as failed."""
    late: list[JobId] = field(default_factory=list)
    """Loads that take too long: a worker that has not ended one reports it as failed to its request, and goes on."""


class Readiness(NamedTuple):
    """How host memory became ready, of the slowest worker; 0 while it is not known. None of it ever falls."""

    first_ready_s: float = 0.0
    ready_s: float = 0.0
    pin_s: float = 0.0
    longest_pin_s: float = 0.0
    """Of one piece: what a step that launches kernels may have had to wait."""

    def or_slower(self, other: Readiness) -> Readiness:
        """What the slower one of both took."""
        return Readiness(*map(max, self, other))


NOT_YET = Readiness()


@dataclass
class Reports(KVConnectorWorkerMetadata):
    """From the workers: how many of them finished which job, and how."""

    finished: dict[JobId, int] = field(default_factory=dict)
    failed: dict[JobId, int] = field(default_factory=dict)
    ready_slots: int = 0
    """The least of any worker."""
    capacity_slots: int = 0
    """Likewise; those that are not ready yet included."""
    copied_bytes: dict[str, int] = field(default_factory=dict)
    """By direction, of all workers."""
    copy_seconds: dict[str, float] = field(default_factory=dict)
    readiness: Readiness = NOT_YET
    """Until all memory is ready, and once more."""

    def ended(self) -> list[tuple[JobId, bool]]:
        """Each job as often as workers are done with it, and whether all went well."""
        counts = ((self.finished, True), (self.failed, False))
        return [(job, ok) for jobs, ok in counts for job, workers in jobs.items() for _ in range(workers)]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Reports:
        """Both workers' together."""
        assert isinstance(other, Reports)  # noqa: S101 - vLLM hands over what we made
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
    """Both, key by key."""
    total = dict(one)
    for key, value in other.items():
        total[key] = total[key] + value if key in total else value
    return total
