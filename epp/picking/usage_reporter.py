"""``request-attribute-reporter``: when a response has ended, the proxy is told a number made of its ``usage``."""

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
    """Where in the dynamic metadata."""

    name: Text
    namespace: str = "envoy.lb"


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One number. Both expressions are CEL over ``usage``, whose numbers are doubles."""

    key: AttributeKey
    expression: Text
    condition: str = ""
    """Of those responses only; empty for all that report usage."""


class ReporterParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Source: the Go picker's plugin of the same type, which takes one attribute; more take more instances."""

    attributes: Annotated[tuple[Attribute, ...], msgspec.Meta(min_length=1, max_length=1)]


class Report(NamedTuple):
    """A number for the proxy."""

    namespace: str
    name: str
    value: int


class RequestAttributeReporter(Plugin[ReporterParameters]):
    """Computes one number of each response that reports usage."""

    type_name = "request-attribute-reporter"
    Parameters = ReporterParameters

    def __init__(self, parameters: ReporterParameters, name: str = "") -> None:
        """Raises: ValueError for what is no expression."""
        super().__init__(parameters, name)
        (attribute,) = parameters.attributes
        self._key = attribute.key
        self._value = located(attribute.expression, "expression")
        self._condition = located(attribute.condition, "condition") if attribute.condition else None
        self._try()

    def _try(self) -> None:
        """Raises: ValueError for expressions that fail on any usage: a misspelt field, the wrong kind of value."""
        try:
            self.report(Usage(prompt_tokens=2, completion_tokens=1, cached_tokens=1))
        except Exception as error:  # whatever the library raises
            known = ", ".join(f"usage.{name}" for name in list(fields_of(Usage()))[:3])
            raise ValueError(
                f"attributes[0]: fails on any usage: {error}; known: {known}, usage.prompt_tokens_details.cached_tokens"
            ) from error

    def report(self, usage: Usage) -> Report | None:
        """The number, None where the condition does not hold. Raises: whatever the expressions do; TypeError when they
        answer another kind of value."""
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
    """The compiled ``text``. Raises: ValueError naming the field."""
    try:
        return compiled(text)
    except ValueError as error:
        raise ValueError(f"attributes[0].{field}: {error}") from error


def compiled(text: str) -> Expression:
    """What computes ``text`` from named values. It raises whatever is wrong with them.

    Raises: ValueError for a text that is no expression, or when the library is not installed.
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
    """``usage`` as expressions see it: under the names of OpenAI's API, whoever reported it."""
    prompt, completion = float(usage.prompt_tokens), float(usage.completion_tokens)
    details = {"cached_tokens": float(usage.cached_tokens or 0)}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
        "prompt_token_details": details,  # as older pickers have it
    }
