"""Objects of the Kubernetes API for plugins: each kind is followed once, and passed to all plugins that learn from it.

A plugin that fails does not end the picker, and does not keep an object from the other plugins.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from epp.config.plan import Notification
from epp.kube.client import Client
from epp.kube.objects import AnyObject
from epp.kube.served import KindName, ServedKind
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore
from scorers.base import Extractor

log = logging.getLogger(__name__)

PAGE = 50
"""Objects in a page of a list: whole pods are large, and 50 of them are decoded in some 6 ms."""


class _Followed:
    """One kind, the plugins that learn from it, and the objects that they were given. It is the follower's listener."""

    def __init__(self, name: KindName, failed: Callable[[str], bool]) -> None:
        self.name = name
        self.extractors: list[Extractor[Any]] = []
        self.events = 0
        self._failed = failed
        self._there: dict[tuple[str, str], dict[str, Any]] = {}  # the metadata, by namespace and name

    def __len__(self) -> int:
        return len(self._there)

    def listed(self, objects: list[AnyObject]) -> Iterator[None]:
        """Pass every object on, and the metadata of each that is gone."""
        for key in self._there.keys() - {_key(item) for item in objects}:
            self._gone(self._there[key], key)
            yield
        for item in objects:
            self.changed(item)
            yield

    def changed(self, item: AnyObject) -> None:
        """Pass an object on."""
        whole = self._whole(item.fields)
        metadata = item.metadata
        self._there[_key(item)] = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        self._pass(lambda extractor: extractor.changed(whole))

    def removed(self, item: AnyObject) -> None:
        """Pass on that an object is gone, with its last state."""
        self._gone(item.fields["metadata"], _key(item), item.fields)

    def _gone(self, metadata: dict[str, Any], key: tuple[str, str], fields: dict[str, Any] | None = None) -> None:
        self._there.pop(key, None)
        whole = self._whole(fields or {"metadata": metadata})
        self._pass(lambda extractor: extractor.removed(whole))

    def _whole(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return ``fields`` with the kind, which objects in a list do not have."""
        group, version, kind = self.name
        return {**fields, "apiVersion": f"{group}/{version}" if group else version, "kind": kind}

    def _pass(self, give: Callable[[Extractor[Any]], None]) -> None:
        self.events += 1
        for extractor in self.extractors:
            try:
                give(extractor)
            except Exception:  # a plugin of any origin
                if self._failed(extractor.name):
                    log.exception("%s failed at an object of %s; more failures are counted only", extractor, self.name)


class Notifications:
    """A part of the picker that follows what plugins learn from. Owner: the event loop."""

    def __init__(
        self,
        client: Client,
        wanted: Sequence[Notification],
        *,
        namespace: str,
        random: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Namespaced kinds are followed in ``namespace``; ``random`` gives numbers in [0, 1)."""
        self._failures: Counter[str] = Counter()
        self._kinds: dict[KindName, tuple[_Followed, ServedKind[AnyObject]]] = {}
        self._chores: list[Chore] = []
        for each in wanted:
            name = KindName(each.group, each.version, each.kind)
            if name not in self._kinds:
                listener = _Followed(name, self._failed)
                served = ServedKind(
                    client,
                    name,
                    AnyObject,
                    listener,
                    namespace=namespace,
                    random=random,
                    clock=clock,
                    page=PAGE,
                    level=logging.WARNING,
                )
                self._kinds[name] = listener, served
            for extractor in each.extractors:
                if extractor not in self._kinds[name][0].extractors:
                    self._kinds[name][0].extractors.append(extractor)

    @property
    def trouble(self) -> str | None:
        """What plugins do not learn now, and why; None while all objects are current."""
        troubles = []
        for listener, served in self._kinds.values():
            plugins = ", ".join(extractor.name for extractor in listener.extractors)
            if served.missing:
                troubles.append(f"the API server has no {served.name}, from which {plugins} would learn")
            elif served.trouble is not None:
                troubles.append(f"{plugins} may be out of date: {served.trouble}")
        return "; ".join(troubles) or None

    async def start(self) -> None:
        """Begin to follow. Returns before the first lists are there."""
        for _, served in self._kinds.values():
            self._chores.append(Chore(f"follow {served.name}", served.run))

    async def stop(self) -> None:
        """Stop following; the plugins keep what they have learned."""
        for chore in self._chores:
            await chore.stop()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        labels = ("group", "version", "kind")
        followed = [(name, *each) for name, each in self._kinds.items()]
        yield Reading(
            "tierwise_notification_objects", "Objects that plugins learn from.", labels,
            [(name, len(listener)) for name, listener, _ in followed],
        )  # fmt: skip
        yield Reading(
            "tierwise_notification_events", "Objects that were passed to plugins, each time that they were.", labels,
            [(name, listener.events) for name, listener, _ in followed], counter=True,
        )  # fmt: skip
        yield Reading(
            "tierwise_notification_current", "1 while plugins learn of every change of a kind.", labels,
            [(name, float(served.current)) for name, _, served in followed],
        )  # fmt: skip
        yield Reading(
            "tierwise_notification_failures", "Objects at which a plugin failed.", ("plugin",),
            [((plugin,), count) for plugin, count in self._failures.items()], counter=True,
        )  # fmt: skip

    def _failed(self, plugin: str) -> bool:
        """Count a failure of ``plugin``, and return whether it is the first."""
        self._failures[plugin] += 1
        return self._failures[plugin] == 1


def _key(item: AnyObject) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name
