"""Write the condition ``Accepted`` of objects, one after another and never in a hurry: it is for people to read.

A condition is written where it is not in the object yet, so that several pickers of one pool write it once. A picker
that comes to another verdict (its configuration may be a newer one) does not fight: a verdict that was written is
written again only after ``AGAIN_S``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.objects import Decoder
from epp.kube.objects_inference import InferenceObject
from epp.metrics.gauges import Reading
from epp.resources.accepted import accepted_patch
from epp.resources.verdict import Verdict

log = logging.getLogger(__name__)

PAUSE_S = 0.1
"""The pause between two writes: ten a second at most. A guess: far below what the API server gives each client."""
REFUSED_PAUSE_S = 45.0
"""The pause after a write that the picker has no right to: a right that is given is used within a minute."""
FAILED_PAUSE_S = 5.0
"""The pause after a write that failed otherwise, such as without an API server. A guess."""
AGAIN_S = 600.0
"""How long a verdict that was written stays unwritten after another writer has replaced it. A guess."""
_NEVER = (400, 413, 422)
"""The refusals of a write that the same write would meet again."""
_OBJECT = Decoder(InferenceObject)


@dataclass(frozen=True, slots=True)
class _Wanted:
    path: str
    """Of the object."""
    item: InferenceObject
    verdict: Verdict


class StatusWriter:
    """Writes the newest verdict of each object. Owner: the event loop; ``run`` is called once."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        pause_s: float = PAUSE_S,
        refused_pause_s: float = REFUSED_PAUSE_S,
    ) -> None:
        """``clock`` gives monotonic seconds, ``now`` Unix time."""
        self.writes: Counter[str] = Counter({"written": 0, "conflict": 0, "refused": 0, "failed": 0})
        self._client, self._clock, self._now = client, clock, now
        self._pause_s, self._refused_pause_s = pause_s, refused_pause_s
        self._wanted: dict[str, _Wanted] = {}
        self._written: dict[str, tuple[str, int, Verdict, float]] = {}  # uid, generation, verdict, time of the write
        self._any = asyncio.Event()
        self._warned = False

    def want(self, path: str, item: InferenceObject, verdict: Verdict) -> None:
        """Let ``verdict`` be written in the status of ``item``, the object at ``path``, unless it is there."""
        if self._is_done(path, item, verdict) or accepted_patch(item, verdict, "") is None:
            self._wanted.pop(path, None)
            return
        self._wanted[path] = _Wanted(path, item, verdict)
        self._any.set()

    def forget(self, path: str) -> None:
        """Write nothing at ``path`` any more: the object is gone, or names another pool."""
        self._wanted.pop(path, None)
        self._written.pop(path, None)

    async def run(self) -> None:
        """Write until the task is cancelled."""
        while True:
            await self._any.wait()
            if not self._wanted:
                self._any.clear()
                continue
            wanted = next(iter(self._wanted.values()))
            await asyncio.sleep(await self._write(wanted))

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_custom_resource_status_writes",
            "Writes of the condition Accepted, by their result.",
            ("result",),
            [((result,), count) for result, count in self.writes.items()],
            counter=True,
        )
        yield Reading(
            "tierwise_custom_resource_status_pending",
            "Objects whose condition Accepted is to be written.",
            (),
            [((), len(self._wanted))],
        )

    async def _write(self, wanted: _Wanted) -> float:
        """Try one write. Returns the seconds until the next one."""
        path, item = wanted.path, wanted.item
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
        try:
            patch = accepted_patch(item, wanted.verdict, stamp)
            if patch is not None:
                await self._client.send("PATCH", f"{path}/status", patch, _OBJECT)
                self.writes["written"] += 1
                self._written[path] = (*_spec_of(item), wanted.verdict, self._clock())
        except Refused as error:
            if error.status == 403:
                self._put_last(path)
                return self._refused(error)
            if error.status == 409:  # another writer was quicker: the watch brings its object, which is judged again
                self.writes["conflict"] += 1
            elif error.status in _NEVER:
                self.writes["failed"] += 1
                log.warning("%s; the condition Accepted of this object is not written until it changes", error)
            elif error.status != 404:
                self._put_last(path)
                return self._failed(error)
        except (KubeError, ConfigError) as error:
            return self._failed(error)
        if self._wanted.get(path) is wanted:  # or else a newer verdict, or a newer object, came meanwhile
            del self._wanted[path]
        return self._pause_s

    def _put_last(self, path: str) -> None:
        """Let every other object be written first: the API server may refuse this one alone."""
        if (wanted := self._wanted.pop(path, None)) is not None:
            self._wanted[path] = wanted

    def _is_done(self, path: str, item: InferenceObject, verdict: Verdict) -> bool:
        """Whether this very verdict was written a short while ago, and another writer has replaced it."""
        uid, generation, before, at = self._written.get(path, ("", 0, None, 0.0))
        return (uid, generation, before) == (*_spec_of(item), verdict) and self._clock() - at < AGAIN_S

    def _refused(self, error: Refused) -> float:
        self.writes["refused"] += 1
        if not self._warned:
            self._warned = True
            log.warning(
                "%s; the condition Accepted is not written, and everything else works: the reasons are in this log "
                "and in the metrics",
                error,
            )
        return self._refused_pause_s

    def _failed(self, error: KubeError | ConfigError) -> float:
        self.writes["failed"] += 1
        log.info("%s; the condition Accepted is written later", error)
        asked = error.retry_after_s if isinstance(error, KubeError) else None
        return max(FAILED_PAUSE_S, min(asked or 0.0, self._refused_pause_s))


def _spec_of(item: InferenceObject) -> tuple[str, int]:
    return item.metadata.uid, item.metadata.generation
