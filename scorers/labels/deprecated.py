"""The deprecated form of ``label-selector-filter``: one label, and the values that are accepted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Filter, Request
from scorers.parameters import check_written


class ByLabelParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which values of one label are accepted; ``label`` and at least one of the other two are required."""

    label: str = ""
    valid_values: tuple[str, ...] = ()
    allows_no_label: bool = False


class ByLabelFilter(Filter[ByLabelParameters]):
    """Keep the endpoints whose label has one of the values.

    Reads: Candidate.labels.
    """

    type_name = "by-label"
    Parameters = ByLabelParameters

    def __init__(self, parameters: ByLabelParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("label", parameters.label)
            if not parameters.valid_values and not parameters.allows_no_label:
                raise ValueError("validValues: missing, and without allowsNoLabel no endpoint could ever be kept")
        self._allowed: frozenset[str | None] = frozenset(self.parameters.valid_values)
        if self.parameters.allows_no_label or not self.parameters.label:
            self._allowed |= {None}

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates whose label is accepted."""
        label, allowed = self.parameters.label, self._allowed
        return [c for c in candidates if c.labels.get(label) in allowed]
