"""A chat template, which turns a conversation into the text that its model was trained on. The only user of ``jinja2``.

A template is the operator's; what it is filled with comes from clients. It runs in jinja's sandbox, which does not
change its inputs and gives no access to attributes that are not plain data.

Source: the environment that transformers 5.19 gives a template: trimmed blocks, a ``tojson`` that escapes nothing,
``raise_exception``, ``strftime_now``, loop controls, and ``{% generation %}``, which marks a part of the text and
changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from epp.errors import ConfigError
from epp.tokens.model.answer import NoTokenIds
from epp.tokens.model.chat import Message, Unrendered, conversation, cut_at_mark, to_be_continued, without_developers
from epp.tokens.model.content_format import takes_parts

DEVELOPER = ('"developer"', "'developer'")


class _Generation(Extension):
    """Implements ``{% generation %}`` … ``{% endgeneration %}``, which renders its content unchanged."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own way

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Return the nodes between the two tags."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


class ChatTemplate:
    """Renders conversations with one template. Any thread may call it."""

    def __init__(
        self,
        source: str,
        named: str,
        *,
        in_parts: bool | None = None,
        now: Callable[[], datetime] = datetime.now,  # local time, as on the engine
    ) -> None:
        """Compile ``source``, which comes from ``named``.

        ``in_parts``: whether the template takes contents as parts; None to detect it. Raises: ConfigError.
        """
        environment = _environment(now)
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(f"{named}: no chat template: {error}") from error
        self._names_content = "content" in source
        self._knows_developers = any(word in source for word in DEVELOPER)
        self.in_parts = takes_parts(tree) if in_parts is None else in_parts

    def write(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, arguments: Mapping[str, Any]
    ) -> str:
        """Return the rendered prompt. Raises: Unrendered if it cannot be rendered."""
        shown = conversation(messages, in_parts=self.in_parts)
        if not shown:
            raise Unrendered(NoTokenIds.REFUSED)
        if not self._knows_developers and any(message["role"] == "developer" for message in shown):
            shown = without_developers(shown)
        more = dict(arguments)
        content = ""
        continued = more.pop("continue_final_message", False)
        if continued and not self._names_content:
            raise Unrendered(NoTokenIds.REFUSED)
        if continued:
            shown, content = to_be_continued(shown)
        try:
            written = self._template.render(messages=shown, tools=tools, **more)
        except Exception as error:  # a template may fail in any way on what clients send
            raise Unrendered(NoTokenIds.REFUSED) from error
        return cut_at_mark(written, content) if continued else written
