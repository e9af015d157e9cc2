"""The counts of a transport as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from epp.metrics.gauges import Reading, ReadingSource
from epp.wire.http2.counters import Statistics


def wire_readings(statistics: Callable[[], Statistics]) -> ReadingSource:
    """Return a source of a transport's connections, streams, resets and floods."""

    def read() -> Iterator[Reading]:
        now = statistics()
        gauges = {"connections": now.connections, "streams": now.streams}
        for name, value in gauges.items():
            yield Reading(f"tierwise_wire_open_{name}", f"Open {name} of the ext-proc port.", (), [((), value)])
        text = "Bytes of answers that clients have not let out, and of messages that are still arriving."
        yield Reading("tierwise_wire_buffered_bytes", text, (), [((), now.buffered_bytes)])
        for field in fields(now):
            name, value = field.name, getattr(now, field.name)
            if name not in gauges and name not in ("floods", "buffered_bytes"):
                plain = name.removesuffix("_total")
                text = f"{plain.replace('_', ' ').capitalize()}."
                yield Reading(f"tierwise_wire_{plain}", text, (), [((), value)], counter=True)
        yield Reading(
            "tierwise_wire_floods",
            "Connections ended because they crossed a bound.",
            ("bound",),
            [((flood.value,), count) for flood, count in now.floods.items()],
            counter=True,
        )

    return read
