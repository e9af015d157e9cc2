"""Streams and events in host memory, with vector clocks that record what is ordered before what."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kvengine.cuda.driver import Stream

Clock = dict[Stream, int]


@dataclass
class HostStream:
    urgent: bool
    clock: Clock = field(default_factory=dict)
    tasks: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue)


@dataclass
class HostEvent:
    clock: Clock = field(default_factory=dict)
    reached: threading.Event = field(default_factory=threading.Event)


def run_tasks(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()


def wait_for(event: threading.Event) -> None:
    assert event.wait(60), "an event is never reached"


def merge(clock: Clock, other: Clock) -> None:
    for stream, at in other.items():
        clock[stream] = max(clock.get(stream, 0), at)
