"""Keep the endpoints whose labels a selector matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from scorers.base import Candidate, Filter, Request
from scorers.parameters import check_written

Labels = Mapping[str, str]


class Operator(Enum):
    """The condition that an expression puts on a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One requirement, as Kubernetes writes them."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_written("key", self.key)
        wants = self.operator in (Operator.IN, Operator.NOT_IN)
        if wants and not self.values:
            raise ValueError(f"values: {self.operator.value} needs at least one")
        if not wants and self.values:
            raise ValueError(f"values: {self.operator.value} takes none")

    def test(self) -> Callable[[Labels], bool]:
        """Return a test for labels. ``NotIn`` is also true if the label is missing, as in Kubernetes."""
        key, values = self.key, frozenset(self.values)
        if self.operator is Operator.IN:
            return lambda labels: labels.get(key) in values
        if self.operator is Operator.NOT_IN:
            return lambda labels: labels.get(key) not in values
        if self.operator is Operator.EXISTS:
            return lambda labels: key in labels
        return lambda labels: key not in labels


class LabelSelectorParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Requirements, all of which must be met; without any, every endpoint matches."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class LabelSelectorFilter(Filter[LabelSelectorParameters]):
    """Keep the endpoints whose labels meet every requirement.

    Reads: Candidate.labels.
    """

    type_name = "label-selector-filter"
    Parameters = LabelSelectorParameters

    def __init__(self, parameters: LabelSelectorParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        equal = [Expression(key, Operator.IN, (value,)) for key, value in self.parameters.match_labels.items()]
        self._tests = [expression.test() for expression in (*equal, *self.parameters.match_expressions)]

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates that match."""
        kept = candidates
        for test in self._tests:
            kept = [c for c in kept if test(c.labels)]
        return kept
