"""The options of ``tierwise doctor``, as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What is looked at, and how it is reported."""

    pool: str = ""
    """The pool that is asked about; empty for all of the namespace."""
    namespace: str = ""
    """Empty for that of the kubeconfig or of the pod."""
    kubeconfig: Path | None = None
    json: bool = False
