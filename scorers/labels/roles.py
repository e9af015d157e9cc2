"""Keep the endpoints of one role in disaggregated serving, according to their label ``llm-d.ai/role``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scorers.base import Candidate, Filter, NoParameters, Request

LABEL = "llm-d.ai/role"

ENCODE = frozenset({"encode", "encode-prefill", "encode-prefill-decode"})
PREFILL = frozenset({"prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both"})
DECODE = frozenset({"decode", "prefill-decode", "encode-prefill-decode", "both"})
"""Role labels that can decode. ``both`` is the older name of ``prefill-decode``."""


class RoleFilter(Filter[NoParameters]):
    """Keep the endpoints whose role is one of ``roles``."""

    roles: ClassVar[frozenset[str | None]]
    """The accepted label values; None stands for no label."""

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates with the role."""
        roles = self.roles
        return [c for c in candidates if c.labels.get(LABEL) in roles]


class EncodeFilter(RoleFilter):
    """Keep the endpoints that encode."""

    type_name = "encode-filter"
    roles = frozenset(ENCODE)


class PrefillFilter(RoleFilter):
    """Keep the endpoints that prefill."""

    type_name = "prefill-filter"
    roles = frozenset(PREFILL)


class DecodeFilter(RoleFilter):
    """Keep the endpoints that decode, and those without the label, which do everything."""

    type_name = "decode-filter"
    roles = frozenset({*DECODE, None})
