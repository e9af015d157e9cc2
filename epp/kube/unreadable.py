"""Objects that cannot be read: each one is left out, counted, and named in the log, and costs no other object."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import msgspec

from epp.kube.rights import resource_at
from epp.metrics.gauges import Reading

MOST_NAMED = 20
"""How many objects the log names; more are only counted. A guess."""
_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")

log = logging.getLogger(__name__)


class Unreadable:
    """The objects that a client could not read. Owner: the event loop."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often such an object came, by the group and the resource."""
        self._named: set[tuple[str, str]] = set()  # path and name

    def note(self, path: str, raw: bytes | msgspec.Raw, problem: str) -> dict[str, str]:
        """Count the object ``raw`` of the list at ``path``, and name it once, with the ``problem`` that it has.

        Returns those fields of its metadata that are text.
        """
        known = _metadata(raw)
        self.counts[resource_at(path)] += 1
        name = known.get("name", "without a name")
        if "namespace" in known:
            name = f"{known['namespace']}/{name}"
        if (path, name) not in self._named and len(self._named) < MOST_NAMED:
            self._named.add((path, name))
            log.warning("%s: the object %s cannot be read and is left out: %s", path, name, problem)
        return known

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        text = "Objects of the API server that could not be read and were left out, each time that they came."
        samples = [(kind, float(count)) for kind, count in sorted(self.counts.items())]
        yield Reading("tierwise_kubernetes_objects_unreadable", text, ("group", "resource"), samples, counter=True)


def _metadata(raw: bytes | msgspec.Raw) -> dict[str, str]:
    try:
        item = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return {}
    return {field: text for field in _FIELDS if isinstance(text := metadata.get(field), str) and text}
