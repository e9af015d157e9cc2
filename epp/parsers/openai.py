"""``openai-parser``: completions, chat completions, embeddings and responses.

Bodies are decoded into typed structs that name only what routing needs; everything else is skipped, not built.
Source: the OpenAI API reference, and vLLM's additions to it (token ids as prompts, ``cache_salt``, ``documents``,
``chat_template``, ``chat_template_kwargs``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TypeAlias, cast

import msgspec
from typing_extensions import override

from epp.errors import BadRequest, UnknownPath
from epp.parsers.base import Parsed, Parser
from epp.parsers.canonical import ABSENT, Message, Rendered, encoded, render_chat, render_text, render_tokens
from epp.parsers.rewrite import with_model
from scorers.base import NoParameters, Prompt

Texts: TypeAlias = str | list[str | int | list[int]]
"""One text, several, one prompt's token ids, or several prompts' ids."""


class Body(msgspec.Struct):
    """What all four have in common."""

    model: str | None = None
    stream: bool | None = None
    cache_salt: str | None = None

    @abstractmethod
    def prompts(self) -> list[Rendered]:
        """At least one prompt. Raises: BadRequest naming the field that holds none."""


class Completion(Body):
    """POST /v1/completions."""

    prompt: Texts | None = None

    @override
    def prompts(self) -> list[Rendered]:
        return render_texts(self.prompt, "prompt")


class Embedding(Body):
    """POST /v1/embeddings."""

    input: Texts | None = None

    @override
    def prompts(self) -> list[Rendered]:
        return render_texts(self.input, "input")


class Chat(Body):
    """POST /v1/chat/completions."""

    messages: list[Message] = []
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT
    chat_template: msgspec.Raw = ABSENT
    chat_template_kwargs: msgspec.Raw = ABSENT

    @override
    def prompts(self) -> list[Rendered]:
        if not self.messages:
            raise BadRequest("`messages` must hold at least one message")
        head = (
            (b"C", self.chat_template),
            (b"K", self.chat_template_kwargs),
            (b"D", self.documents),
            (b"T", self.tools),
            (b"F", self.functions),
        )
        return [render_chat(head, self.messages)]


class Responses(Body):
    """POST /v1/responses. Rendered as the chat that an engine makes of it: instructions are its system message."""

    input: str | list[Message] | None = None
    instructions: str | None = None
    tools: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT
    conversation: msgspec.Raw = ABSENT

    @override
    def prompts(self) -> list[Rendered]:
        if not self.input:
            raise BadRequest("`input` must hold a text or at least one item")
        messages = [Message(role="system", content=self.instructions)] if self.instructions else []
        messages += [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        head = ((b"P", self.previous_response_id), (b"O", self.conversation), (b"T", self.tools))
        return [render_chat(head, messages)]


def render_texts(given: Texts | None, field: str) -> list[Rendered]:
    """The prompts of a field that holds texts or token ids. Raises: BadRequest naming it when it is empty or mixed."""
    if isinstance(given, str) and given:
        return [render_text(given)]
    if not given:
        raise BadRequest(f"`{field}` must hold a text, a list of texts, token ids, or a list of lists of token ids")
    kinds = set(map(type, given))
    if kinds == {str}:
        return [render_text(text) for text in cast("list[str]", given)]
    if kinds == {int}:
        return [render_tokens(cast("list[int]", given), field)]
    if kinds == {list} and all(given):
        return [render_tokens(ids, field) for ids in cast("list[list[int]]", given)]
    raise BadRequest(f"`{field}` mixes texts, token ids and lists, or holds an empty list; send one kind")


LONGEST_MODEL = 1024
LONG_SALT = 256
"""Characters."""

DECODERS: dict[str, msgspec.json.Decoder[Body]] = {
    "/chat/completions": msgspec.json.Decoder(Chat),
    "/completions": msgspec.json.Decoder(Completion),
    "/embeddings": msgspec.json.Decoder(Embedding),
    "/responses": msgspec.json.Decoder(Responses),
}


class OpenAIParser(Parser[NoParameters]):
    """Reads what is sent to a path that ends in one of ``DECODERS``; of two that fit, the longer."""

    type_name = "openai-parser"

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        read = decode(decoder_for(path), body)
        if not read.model:
            raise BadRequest("model not found in request body")
        if len(read.model) > LONGEST_MODEL:
            raise BadRequest(f"`model` has {len(read.model):,} characters; at most {LONGEST_MODEL:,} are read")
        target = target_model or read.model
        if len(target) > LONGEST_MODEL:
            raise BadRequest(f"the rewritten model has {len(target):,} characters; at most {LONGEST_MODEL:,} are sent")
        try:
            rendered = read.prompts()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the request body is not UTF-8: {error}") from error
        return Parsed(
            model=read.model,
            target_model=target,
            prompts=tuple([Prompt(identity(one.kind, target, read.cache_salt), one.data) for one in rendered]),
            prompt_tokens=max(1, sum([one.tokens for one in rendered])),
            streaming=bool(read.stream),
            body=with_model(body, target) if target != read.model else None,
        )


@lru_cache(maxsize=256)
def decoder_for(path: str) -> msgspec.json.Decoder[Body]:
    """The decoder of the longest suffix of ``path``. Raises: BadRequest naming the path when there is none."""
    fitting = [suffix for suffix in DECODERS if path.endswith(suffix)]
    if not fitting:
        known = ", ".join(DECODERS)
        raise UnknownPath(f"no parser for path {path!r}; openai-parser reads paths that end in {known}")
    return DECODERS[max(fitting, key=len)]


def decode(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    """Decode ``body``. Raises: BadRequest for whatever is wrong with it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(f"invalid request body: {error}") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"the request body is not UTF-8: {error}") from error
    except RecursionError as error:
        raise BadRequest("the request body is nested too deeply") from error


def identity(kind: bytes, model: str, cache_salt: str | None) -> bytes:
    """What makes equal bytes a different prefix.

    A long salt is told by its digest: what clients send must not decide how much memory the cache of identities takes.
    """
    salt = cache_salt or ""
    if len(salt) <= LONG_SALT:
        return joined(kind, model, salt, b"")
    return joined(kind, model, "", sha256(encoded(salt)).digest())


@lru_cache(maxsize=1024)
def joined(kind: bytes, model: str, salt: str, salt_digest: bytes) -> bytes:
    """Each part after its length, so that no two lists of parts collide."""
    parts: Sequence[bytes] = (kind, encoded(model), encoded(salt), salt_digest)
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
