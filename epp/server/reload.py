"""Follows the configuration file: a valid new one replaces the old as a whole, an invalid one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from epp.config.digest import digest
from epp.config.plan import Plan
from epp.errors import ConfigError
from epp.metrics.gauges import Reading
from epp.runtime.background import Chore
from epp.runtime.followed_files import FollowedFiles
from epp.runtime.slices import sliced

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanSource:
    """The source of the plan in use, from which it can be read again."""

    file: FollowedFiles | None
    """It was ``seen`` before the plan was read; None if changes are not followed."""
    read: Callable[..., Plan]
    """Returns the plan of the file as it is now; takes the one in use as ``before``. Raises: ConfigError."""


class ConfigReload:
    """Follows ``file``, which was ``seen`` before the configuration in use was read. Owner: the event loop.

    ``plan`` reads the file as it is now, and raises ConfigError. ``use`` serves by that plan from the next request on
    and returns the work that is left, in small steps; it raises ConfigError, and has changed nothing then, for a change
    that takes a restart. ``logged`` are the lines of the log about the configuration in use.
    """

    def __init__(
        self,
        file: FollowedFiles,
        plan: Callable[[], Plan],
        use: Callable[[Plan], Iterator[None]],
        *,
        logged: Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.reloads = 0
        self.errors = 0
        self.current = True
        """Whether the plan in use is that of the file."""
        self._path = file.paths[0]
        self.digest = _digest(self._path)
        """Of the text of the file from which the plan in use was read."""
        self._plan = plan
        self._use = use
        self._logged = logged
        self._now = now
        self._since = now()
        self._file = file
        self._follower: Chore | None = None

    def start(self) -> None:
        """Start to follow the file."""
        self._follower = Chore("config-reload", self._follow)

    async def stop(self) -> None:
        """Stop following the file."""
        self._file.stop()
        if self._follower is not None:
            await self._follower.stop()
            self._follower = None

    def readings(self) -> Iterator[Reading]:
        """Return the readings for ``Telemetry.gauge_source``."""
        for name, text, value, counter in (
            ("reloads", "Changed configurations that were taken.", self.reloads, True),
            ("reload_errors", "Changed configurations that were refused.", self.errors, True),
            ("current", "1 while the configuration in use is what its file says.", int(self.current), False),
            ("since_timestamp_seconds", "When the configuration in use was taken, in Unix time.", self._since, False),
        ):
            yield Reading(f"tierwise_config_{name}", text, (), [((), value)], counter=counter)

    async def _follow(self) -> None:
        async for _ in self._file.changes():
            self._file.seen()
            try:
                read = _digest(self._path)
                plan = await asyncio.to_thread(self._plan)
                rubble = self._use(plan)
            except Exception as error:  # no file must end the picker
                self._refused(error)
            else:
                self.reloads += 1
                self.current, self._since, self.digest = True, self._now(), read
                self._log_changes(plan.lines)
                log.info("%s has changed, and is in use from now on", self._path)
                await sliced(rubble)

    def _log_changes(self, lines: Sequence[str]) -> None:
        """Log the lines that are not as they were."""
        for line in self._logged:
            if line not in lines:
                log.info("%s: no longer: %s", self._path, line)
        for line in lines:
            if line not in self._logged:
                log.info("%s: %s", self._path, line)
        self._logged = lines

    def _refused(self, error: Exception) -> None:
        self.errors += 1
        self.current = False
        expected = isinstance(error, ConfigError)
        log.error(
            "%s has changed and is refused, the one before stays in use: %s",
            self._path, error, exc_info=None if expected else error,
        )  # fmt: skip


def _digest(path: Path) -> str:
    """Return the digest of a file; empty if it cannot be read."""
    try:
        return digest(path.read_bytes())
    except OSError:
        return ""
