"""Asks the API server at the start what the picker may do, and shows what is missing: in the log, and on ``/readyz``.

Each feature whose rights are missing is one warning, and all missing rules together are one message, a Role to apply.
The question is repeated soon while something is missing or could not be asked, or when a request was refused for want
of a right: a Role may be taken away. Otherwise it is repeated rarely: a kind whose rights do not matter yet may be
installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.reviews import is_served, may_i, my_name
from epp.kube.rights import Need, Right, manifest, resource_at
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore

AGAIN_S = 30.0
"""How long after a check the next one comes, while something is missing or a request was refused. A guess: below the
minute within which a right that is given or taken away has to be noticed."""
IN_VAIN = 2
"""After so many checks that a refusal led to and that found every right, refusals of the same resource lead to none,
until some right is missing: the picker may have the right to another group instead. A guess."""
RARELY_S = 600.0
"""How long after a check the next one comes otherwise. A guess: the questions are a dozen."""

log = logging.getLogger(__name__)


class OwnRights:
    """The rights that the picker needs and has. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(
        self, client: Client, needs: Sequence[Need], *, again_s: float = AGAIN_S, rarely_s: float = RARELY_S
    ) -> None:
        """Several of ``needs`` may be of one feature, such as those of two groups."""
        self._client, self._needs = client, tuple(needs)
        self._again_s, self._rarely_s = again_s, rarely_s
        self._without = {need.feature: need.without for need in needs}
        self._needed = {
            (right.group, right.resource) for need in needs for one in (need, *need.instead) for right in one.rights
        }
        self._refused: set[tuple[str, str]] = set()  # resources, since the last check began
        self._any_refused = asyncio.Event()
        self._in_vain: Counter[tuple[str, str]] = Counter()  # checks by the resource whose refusal led to them
        self._missing: dict[str, tuple[Right, ...]] = {}
        self._asked = False
        self._warned = False  # that the question itself failed: once
        self._chore: Chore | None = None

    @property
    def trouble(self) -> str | None:
        """Which features lack rights; None if none does, or it is not known yet."""
        return "; ".join(self._sentence(feature) for feature in self._missing) or None

    async def start(self) -> None:
        """Begin to ask. Returns at once."""
        self._client.on_forbidden = self._note_refusal
        self._chore = Chore("check-rights", self._run)

    async def stop(self) -> None:
        """End the task that asks."""
        self._client.on_forbidden = None
        if self._chore is not None:
            await self._chore.stop()

    def readings(self) -> Iterator[Reading]:
        """Yield the readings for ``Telemetry.gauge_source``; they have no values before the API server has answered."""
        known = self._without if self._asked else ()
        counts = [((feature,), float(len(self._missing.get(feature, ())))) for feature in known]
        text = "Rights that the picker lacks in its cluster, by the feature that needs them; 0 if it has all."
        yield Reading("tierwise_kubernetes_rights_missing", text, ("feature",), counts)

    async def _run(self) -> None:
        while True:
            refused, self._refused = self._refused, set()
            self._any_refused.clear()
            complete = await self._check()
            if complete:
                self._in_vain.update(refused)
            else:
                self._in_vain.clear()
            await asyncio.sleep(self._again_s)
            if complete:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rarely_s - self._again_s):
                        await self._any_refused.wait()

    def _note_refusal(self, path: str) -> None:
        resource = resource_at(path)
        if resource in self._needed and self._in_vain[resource] < IN_VAIN:
            self._refused.add(resource)
            self._any_refused.set()

    async def _check(self) -> bool:
        """Ask once. Returns whether every right is there."""
        try:
            missing: dict[str, tuple[Right, ...]] = {}
            for need in self._needs:
                if lacking := await self._lacks(need):
                    missing[need.feature] = missing.get(need.feature, ()) + lacking
            account = await my_name(self._client) if missing else ""
        except (KubeError, ConfigError) as error:
            self._failed(error)
            return False
        before, self._missing, self._asked = self._missing, missing, True
        self._report(before, account)
        return not missing

    async def _lacks(self, need: Need) -> tuple[Right, ...]:
        """Return the rights that are missing for ``need``, and for each need that would do instead."""
        first: tuple[Right, ...] = ()
        for one in (need, *need.instead):
            if one.version and not await is_served(self._client, one.version):
                continue
            # One after another, over one connection: a handshake for each would cost more than the wait.
            lacking = tuple([right for right in one.rights if not await may_i(self._client, right)])
            if not lacking:
                return ()
            first = first or lacking
        return first

    def _report(self, before: dict[str, tuple[Right, ...]], account: str) -> None:
        for feature in self._without:
            lacking = self._missing.get(feature, ())
            if lacking and lacking != before.get(feature):
                log.warning("%s", self._sentence(feature))
            elif not lacking and feature in before:
                log.info("%s: the rights that were missing are there", feature)
        if self._missing and self._missing != before:
            every = [right for lacking in self._missing.values() for right in lacking]
            log.warning("to give the picker what it lacks, apply this:\n%s", manifest(every, account or "NAME"))

    def _failed(self, error: KubeError | ConfigError) -> None:
        """Warn once where the API server refuses the question; followers warn when it is away."""
        if isinstance(error, Refused) and not self._warned:
            self._warned = True
            log.warning("what the picker may do is not known, and is found out by trying: %s", error)

    def _sentence(self, feature: str) -> str:
        rights = ", ".join(map(str, self._missing[feature]))
        return f"{feature}: the picker may not {rights}, so {self._without[feature]}"
