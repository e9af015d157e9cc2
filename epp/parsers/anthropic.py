"""The ``anthropic-parser``, which reads the Messages API.

A request is rendered as the chat that an engine makes of it. So a conversation shares its prefix whichever API it uses,
as long as it consists of text: ``system`` is the first message, results of tools are separate messages before the rest
of the user's turn, thinking comes before the assistant's text, and tool calls come after it. ``cache_control`` does not
affect the prompt: clients move it along with every turn.

Source: Anthropic's API reference; the conversion in vLLM's ``entrypoints/anthropic``, as of version 0.32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.canonical import (
    ABSENT,
    FIELD,
    MESSAGE,
    MOST_PIECES,
    Out,
    Rendered,
    add_raw,
    add_stranger,
    encoded,
    is_given,
    too_many_pieces,
)
from epp.parsers.json_body import Body, JsonParser
from epp.parsers.media import IMAGE_TOKENS

BILLING = "x-anthropic-billing-header"
"""The start of a system text that Claude Code sends with another value each time; engines remove it."""


class Block(msgspec.Struct, gc=False):
    """One block of content; which fields are set depends on ``type``."""

    type: str | None = None
    text: str | None = None
    source: msgspec.Raw = ABSENT
    title: str | None = None
    context: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = ABSENT
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    thinking: str | None = None
    data: str | None = None


class Turn(msgspec.Struct, gc=False):
    """One message of the field ``messages``."""

    role: str | None = None
    content: str | list[Block] | None = None


class CountTokens(Body):
    """The body of POST /v1/messages/count_tokens, which returns a prompt's length, computed without a GPU."""

    computes: ClassVar[bool] = False
    must_be_read: ClassVar[bool] = False

    messages: list[Turn] | None = None
    system: str | list[Block] | None = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    chat_template_kwargs: msgspec.Raw = ABSENT

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if not self.messages:
            raise BadRequest("`messages` must hold at least one message")
        check_blocks(self.messages)
        out = Out()
        add_raw(out, b"K", self.chat_template_kwargs)
        if self.tools:
            add_tools(out, self.tools)
        if system := joined_text(self.system):
            out += (MESSAGE, b"system", FIELD, b"c", encoded(system))
        for turn in self.messages:
            add_turn(out, turn, stranger)
        return [out.rendered()]


class Messages(CountTokens):
    """The body of POST /v1/messages."""

    computes: ClassVar[bool] = True
    must_be_read: ClassVar[bool] = True


def check_blocks(messages: list[Turn]) -> None:
    """Check the number of messages and blocks, including blocks in tool results. Raises: BadRequest if too many."""
    blocks = [block for turn in messages if type(turn.content) is list for block in turn.content]
    nested = sum([len(block.content) for block in blocks if type(block.content) is list])
    if (count := len(messages) + len(blocks) + nested) > MOST_PIECES:
        raise too_many_pieces(count)


def joined_text(system: str | list[Block] | None) -> str:
    """Return the text of the system message, with its blocks joined."""
    if system is None or isinstance(system, str):
        return system or ""
    texts = (block.text for block in system if block.text)
    return "".join(text for text in texts if not text.startswith(BILLING))


def add_tools(out: Out, tools: list[dict[str, msgspec.Raw]]) -> None:
    """Append the tools under a tag of their own, since their schema differs from that of a chat's tools."""
    for tool in tools:
        tool.pop("cache_control", None)
    encoded_tools = msgspec.json.encode(tools)
    str(encoded_tools, "utf-8")  # raises UnicodeDecodeError if the client's bytes are not UTF-8
    out += (FIELD, b"Y", encoded_tools)


def add_turn(out: Out, turn: Turn, stranger: bytes) -> None:
    """Append one message, after the tool results that a user's message contains."""
    role, content = encoded(turn.role or ""), turn.content
    if content is None or isinstance(content, str):
        out += (MESSAGE, role) if content is None else (MESSAGE, role, FIELD, b"c", encoded(content))
        return
    rest = content
    if turn.role == "user":
        rest = [block for block in content if not is_result(block)]
        if len(rest) < len(content):
            for block in content:
                if is_result(block):
                    out += (MESSAGE, b"tool")
                    add_result(out, block, stranger)
            if not rest:
                return
    out += (MESSAGE, role)
    for block in sorted(rest, key=place):
        add_block(out, block, stranger)


def place(block: Block) -> int:
    """Return the sort key of a block in its message: thinking first, then text, then tool calls."""
    return -1 if block.type in THOUGHTS else 1 if is_call(block) else 0


THOUGHTS = ("thinking", "redacted_thinking")


def is_call(block: Block) -> bool:
    """Return whether ``block`` is a tool call, of the client or of the server."""
    return block.type is not None and block.type.endswith("tool_use")


def is_result(block: Block) -> bool:
    """Return whether ``block`` is the result of a tool."""
    return block.type is not None and block.type.endswith("tool_result")


def add_result(out: Out, block: Block, stranger: bytes) -> None:
    """Append the result of a tool; several texts become the lines of one."""
    content = block.content
    if isinstance(content, list) and all(part.type == "text" for part in content):
        content = "\n".join(part.text or "" for part in content)
    if isinstance(content, str):
        out += (FIELD, b"c", encoded(content))
    elif content is not None:
        for part in content:
            add_block(out, part, stranger)
    if block.tool_use_id:
        out += (FIELD, b"i", encoded(block.tool_use_id))
    if block.is_error:
        out += (FIELD, b"k")


def add_block(out: Out, block: Block, stranger: bytes) -> None:
    """Append one block. A lone text is the same prompt as a plain string, and gives the same bytes."""
    kind = block.type
    if kind == "text" and block.text is not None:
        if block.text:  # an empty text adds nothing
            out += (FIELD, b"c", encoded(block.text))
    elif kind == "thinking" and block.thinking is not None:
        out += (FIELD, b"r", encoded(block.thinking))
    elif kind == "redacted_thinking" and block.data is not None:
        out.add_media(b"q", encoded(block.data))
    elif is_call(block) and block.name is not None:
        out += (FIELD, b"u", encoded(block.id or ""), FIELD, b"m", encoded(block.name))
        add_raw(out, b"j", block.input)
    elif is_result(block):  # a result of a server tool, inside the assistant's message
        out += (FIELD, b"z")
        add_result(out, block, stranger)
        out += (FIELD, b"y")
    elif kind in ("image", "document") and is_given(block.source):
        if kind == "image":
            out.add_media(b"M", block.source, IMAGE_TOKENS)
        else:
            out.add_media(b"N", block.source)
        for tag, text in titles(block):
            out += (FIELD, tag, encoded(text))
    else:
        add_stranger(out, stranger)


def titles(block: Block) -> Iterator[tuple[bytes, str]]:
    """Yield the title and the context of a document, with their tags."""
    if block.title:
        yield b"h", block.title
    if block.context:
        yield b"w", block.context


class AnthropicParser(JsonParser):
    """Reads requests to ``/messages`` and ``/messages/count_tokens``."""

    type_name = "anthropic-parser"
    decoders: ClassVar[Mapping[str, msgspec.json.Decoder[Body]]] = {
        "/messages": msgspec.json.Decoder(Messages),
        "/messages/count_tokens": msgspec.json.Decoder(CountTokens),
    }
    paths = tuple(decoders)
