"""What the scheduler's side and the workers' tell each other, once a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from kvengine.copiers.base import JobId
from kvengine.plan import Job


@dataclass
class Orders(KVConnectorMetadata):
    """To every worker: the jobs of this step."""

    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)


@dataclass
class Reports(KVConnectorWorkerMetadata):
    """From the workers: how many of them finished which job, and how."""

    finished: dict[JobId, int] = field(default_factory=dict)
    failed: dict[JobId, int] = field(default_factory=dict)
    ready_slots: int = 0
    """The least of any worker that has something to say."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Reports:
        """Both workers' together."""
        assert isinstance(other, Reports)  # noqa: S101 - vLLM hands over what we made
        return Reports(
            summed(self.finished, other.finished),
            summed(self.failed, other.failed),
            min(self.ready_slots, other.ready_slots),
        )


def summed(one: dict[JobId, int], other: dict[JobId, int]) -> dict[JobId, int]:
    """Counts of both."""
    total = dict(one)
    for job, count in other.items():
        total[job] = total.get(job, 0) + count
    return total
