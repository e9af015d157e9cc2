"""The addresses at which an endpoint publishes its KV events."""

from __future__ import annotations

import re

from epp.kvevents.orders import Wire
from scorers.base import Candidate
from scorers.precise.parameters import KvEventsConfig

_RANK = re.compile(r"-rank-(\d{1,4})$")


def wires_of(candidate: Candidate, settings: KvEventsConfig) -> tuple[Wire, ...]:
    """Return one wire per data-parallel rank; none if publishers connect to us, or if no valid port is known."""
    if settings.zmq_endpoint:
        return ()
    where = settings.pod_discovery_config
    host, _, serving = candidate.address.rpartition(":")
    rank = _RANK.search(candidate.name)
    more = int(rank[1]) if rank is not None else 0
    labels = candidate.labels
    events = _port(
        labels.get(where.socket_port_label), where.socket_port_offset, int(serving), where.socket_port or 0, more
    )
    replay = _port(
        labels.get(where.replay_socket_port_label),
        where.replay_socket_port_offset,
        int(serving),
        where.replay_socket_port,
        more,
    )
    if not events:
        return ()
    return tuple(
        [
            Wire(f"tcp://{host}:{events + n}", f"tcp://{host}:{replay + n}" if replay else "")
            for n in range(where.data_parallel_size or 1)
        ]
    )


def publishers_of(candidate: Candidate, settings: KvEventsConfig) -> tuple[str, ...]:
    """Return the addresses where the endpoint publishes, or where its publishers connect to us; none without a port."""
    if settings.zmq_endpoint:
        return (settings.zmq_endpoint,)
    return tuple([wire.events for wire in wires_of(candidate, settings)])


def _port(label: str | None, offset: int | None, serving: int, port: int, rank: int) -> int:
    """Return the port of the first publisher, or 0 if there is no valid one."""
    if label is not None and label.isascii() and label.isdigit():
        found = int(label)
    elif offset is not None:
        found = serving + offset
    else:
        found = port + rank if port else 0
    return found if 0 < found < 65536 else 0
