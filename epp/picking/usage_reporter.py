"""``request-attribute-reporter``: at a response's end, sends the proxy a number computed from its ``usage``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from epp.decision import Usage
from scorers.base import Plugin

Text = Annotated[str, msgspec.Meta(min_length=1)]
Expression: TypeAlias = Callable[[Mapping[str, object]], object]


class AttributeKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The place of a number in the dynamic metadata."""

    name: Text
    namespace: str = "envoy.lb"


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The definition of one number. Both expressions are CEL over ``usage``, whose numbers are doubles."""

    key: AttributeKey
    expression: Text
    condition: str = ""
    """The responses that are reported; empty reports all that contain usage."""


class ReporterParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The parameters of one reporter, which has one attribute; several attributes need several reporters.

    Source: the Go picker's plugin of the same type.
    """

    attributes: Annotated[tuple[Attribute, ...], msgspec.Meta(min_length=1, max_length=1)]


class Report(NamedTuple):
    """A number for the proxy, with its place in the dynamic metadata."""

    namespace: str
    name: str
    value: int


class RequestAttributeReporter(Plugin[ReporterParameters]):
    """Computes one number from each response that contains usage."""

    type_name = "request-attribute-reporter"
    Parameters = ReporterParameters

    def __init__(self, parameters: ReporterParameters, name: str = "") -> None:
        """Compile the expressions. Raises: ValueError for one that is not valid."""
        super().__init__(parameters, name)
        (attribute,) = parameters.attributes
        self._key = attribute.key
        self._value = located(attribute.expression, "expression")
        self._condition = located(attribute.condition, "condition") if attribute.condition else None
        self._try()

    def _try(self) -> None:
        """Try the expressions. Raises: ValueError if they fail on any usage, for example by a misspelled field."""
        try:
            self.report(Usage(prompt_tokens=2, completion_tokens=1, cached_tokens=1))
        except Exception as error:  # whatever the library raises
            known = ", ".join(f"usage.{name}" for name in list(fields_of(Usage()))[:3])
            raise ValueError(
                f"attributes[0]: fails on any usage: {error}; known: {known}, usage.prompt_tokens_details.cached_tokens"
            ) from error

    def report(self, usage: Usage) -> Report | None:
        """Return the report; None if the condition does not hold.

        Raises: what the expressions raise; TypeError if they return a value of a wrong kind.
        """
        values = {"usage": fields_of(usage)}
        if self._condition is not None:
            holds = self._condition(values)
            if not isinstance(holds, bool):
                raise TypeError(f"the condition must be true or false; it is {holds!r}")
            if not holds:
                return None
        value = self._value(values)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError(f"the expression must be a number; it is {value!r}")
        return Report(self._key.namespace or "envoy.lb", self._key.name, int(value))


def located(text: str, field: str) -> Expression:
    """Return ``text``, compiled. Raises: ValueError naming the field."""
    try:
        return compiled(text)
    except ValueError as error:
        raise ValueError(f"attributes[0].{field}: {error}") from error


def compiled(text: str) -> Expression:
    """Return a function that computes ``text`` from named values, and raises if they are wrong for it.

    Raises: ValueError for a text that is not an expression, or if the library is not installed.
    """
    try:
        import cel
    except ImportError as error:
        raise ValueError("expressions need a library: pip install '.[cel]' in a clone of Tierwise") from error
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no expression: {str(error).splitlines()[0]}") from error
    return lambda values: program.execute(dict(values))


def fields_of(usage: Usage) -> dict[str, object]:
    """Return ``usage`` as expressions see it: with the names of OpenAI's API, for every engine."""
    prompt, completion = float(usage.prompt_tokens), float(usage.completion_tokens)
    details = {"cached_tokens": float(usage.cached_tokens or 0)}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
        "prompt_token_details": details,  # as older pickers have it
    }
