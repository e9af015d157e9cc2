"""The durations of an election, which flags set: this file imports nothing that a picker alone needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """How long a Lease counts and how often it is renewed. The defaults are controller-runtime's."""

    duration_s: float = 15.0
    """How long a standby waits after the last renewal."""
    overdue_s: float = 10.0
    """How long a renewal may take: then the leader reports it, and so long standbys wait for it after an outage."""
    retry_s: float = 2.0
    """How often the leader renews, and how long after a failure the next attempt is."""
