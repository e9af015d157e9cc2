"""How long a Lease counts, and what a picker may do next with it."""

from __future__ import annotations

from dataclasses import dataclass

from epp.kube.election.lease import Record

TRUSTED_S = 60.0
"""The longest that a Lease is waited for, if it states more than this picker's own duration. A guess: above every
duration in use, and an end for what was written by hand."""
FREE_S = 1.0
"""How long a Lease must be free until a standby serves without it, since one request is enough to take it. A guess."""


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
