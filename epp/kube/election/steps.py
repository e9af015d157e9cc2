"""How long a Lease counts, and what a picker may do next with it."""

from __future__ import annotations

from dataclasses import dataclass

from epp.kube.election.lease import Record

TRUSTED_S = 60.0
"""The longest that a Lease is waited for, if it states more than this picker's own duration. A guess: above every
duration in use, and an end for what was written by hand."""
FREE_S = 1.0
"""How long a Lease must be free until a standby serves without it, since one request is enough to take it. A guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """How long a Lease counts and how often it is renewed. The defaults are controller-runtime's."""

    duration_s: float = 15.0
    """How long a standby waits after the last renewal."""
    overdue_s: float = 10.0
    """How long a renewal may take: then the leader reports it, and so long standbys wait for it after an outage."""
    retry_s: float = 2.0
    """How often the leader renews, and how long after a failure the next attempt is."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the Lease now."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the Lease now."""

    record: Record
    version: str | None
    """The version that is replaced; None to create the Lease."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until this time, or until something was seen."""

    until: float


Step = Read | Write | Wait
