"""Copies that were ordered, and copies that take too long."""

from __future__ import annotations

from kvengine.copiers.base import Direction
from kvengine.index import ChunkKey, Slot
from kvengine.jobs import Job, Jobs
from tests.kvengine.clock import Clock

KEY, SLOT = ChunkKey(b"a"), Slot(3)


def ordered(jobs: Jobs, direction: Direction = Direction.LOAD) -> Job:
    return jobs.order("r", direction, [KEY], [SLOT], 0, [7])


def test_a_job_is_late_once_and_stuck_until_every_worker_has_finished_it(clock: Clock) -> None:
    jobs = Jobs(2, clock)
    job = ordered(jobs)
    jobs.count_report()
    jobs.count_report()
    clock.now = 9.9
    assert jobs.newly_late(10) == []
    assert not jobs.stuck
    clock.now = 10
    assert jobs.newly_late(10) == [job]
    assert jobs.newly_late(10) == []
    assert jobs.finished(job.id, ok=True) is None
    assert jobs.stuck
    ended = jobs.finished(job.id, ok=True)
    assert ended is not None
    assert ended.keys == [KEY]
    assert not jobs.stuck
    assert not jobs


def test_time_counts_from_the_second_report_after_the_order(clock: Clock) -> None:
    """A step may take minutes, and no worker can report the end of a copy during it."""
    jobs = Jobs(1, clock)
    jobs.count_report()
    job = ordered(jobs)
    for reports in range(2):
        clock.now = 1000 * (reports + 1)
        assert jobs.newly_late(10) == []
        jobs.count_report()
    assert jobs.newly_late(10) == []
    clock.now += 10
    younger = ordered(jobs)
    jobs.count_report()
    jobs.count_report()
    assert jobs.newly_late(10) == [job]
    clock.now += 10
    assert jobs.newly_late(10) == [younger], "the first one was returned before"


def test_those_that_end_in_time_are_never_late(clock: Clock) -> None:
    jobs = Jobs(1, clock)
    stores = [ordered(jobs, Direction.STORE) for _ in range(3)]
    assert (jobs.count(Direction.STORE), jobs.count(Direction.LOAD), len(jobs)) == (3, 0, 3)
    jobs.count_report()
    jobs.count_report()
    for job in (stores[1], stores[0]):
        assert jobs.finished(job.id, ok=False) is not None
    clock.now = 10
    assert jobs.newly_late(10) == [stores[2]]
    assert jobs.finished(stores[0].id, ok=True) is None, "ended before"
