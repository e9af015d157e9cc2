"""The ``openai-parser``: completions, chat completions, embeddings, responses, conversations and images.

Source: the OpenAI API reference, and vLLM's additions to it (token ids as prompts, ``cache_salt``, ``documents``,
``chat_template``, ``chat_template_kwargs``, and ``render``, which returns a request's tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.canonical import ABSENT, Message, Rendered, encoded, render_chat
from epp.parsers.json_body import Body, JsonParser
from epp.parsers.texts import Texts, render_texts


class Completion(Body):
    """The body of POST /v1/completions."""

    prompt: Texts | None = None

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        return render_texts(self.prompt, "prompt")


class CompletionRender(Completion):
    """The body of POST /v1/completions/render, which returns the prompt's tokens, computed without a GPU."""

    computes: ClassVar[bool] = False


class Embedding(Body):
    """The body of POST /v1/embeddings."""

    input: Texts | None = None

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        return render_texts(self.input, "input")


class Chat(Body):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] | None = None
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT
    chat_template: msgspec.Raw = ABSENT
    chat_template_kwargs: msgspec.Raw = ABSENT

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if not self.messages:
            raise BadRequest("`messages` must hold at least one message")
        head = (
            (b"C", self.chat_template),
            (b"K", self.chat_template_kwargs),
            (b"D", self.documents),
            (b"T", self.tools),
            (b"F", self.functions),
        )
        return [render_chat(head, self.messages, stranger)]


class ChatRender(Chat):
    """The body of POST /v1/chat/completions/render, which returns a conversation's tokens, computed without a GPU."""

    computes: ClassVar[bool] = False


class Responses(Body):
    """The body of POST /v1/responses.

    It is rendered as the chat that an engine makes of it: instructions become its system message.
    """

    input: str | list[Message] | None = None
    instructions: str | None = None
    tools: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT
    conversation: msgspec.Raw = ABSENT

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if not self.input:
            raise BadRequest("`input` must hold a text or at least one item")
        messages = [Message(role="system", content=self.instructions)] if self.instructions else []
        messages += [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        head = ((b"P", self.previous_response_id), (b"O", self.conversation), (b"T", self.tools))
        return [render_chat(head, messages, stranger)]


class Conversation(Body):
    """The body of POST /v1/conversations: items that are kept for later requests.

    The API has no model here, and nothing is computed.
    """

    computes: ClassVar[bool] = False
    names_model: ClassVar[bool] = False

    items: msgspec.Raw = ABSENT

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        items = bytes(self.items)
        if not (items.startswith(b"[") and items[1:-1].strip()):
            raise BadRequest("`items` must be a list of at least one item")
        return []


class Image(Body):
    """The body of POST /v1/images/generations. A picture's description shares no prefix with a text to be continued."""

    prompt: str | None = None

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if not self.prompt:
            raise BadRequest("`prompt` must hold a text")
        return [Rendered(b"image", encoded(self.prompt))]


class OpenAIParser(JsonParser):
    """Reads bodies sent to a path that ends in one of ``decoders``; if two fit, the longer one counts."""

    type_name = "openai-parser"
    decoders: ClassVar[Mapping[str, msgspec.json.Decoder[Body]]] = {
        "/chat/completions": msgspec.json.Decoder(Chat),
        "/chat/completions/render": msgspec.json.Decoder(ChatRender),
        "/completions": msgspec.json.Decoder(Completion),
        "/completions/render": msgspec.json.Decoder(CompletionRender),
        "/conversations": msgspec.json.Decoder(Conversation),
        "/embeddings": msgspec.json.Decoder(Embedding),
        "/images/generations": msgspec.json.Decoder(Image),
        "/responses": msgspec.json.Decoder(Responses),
    }
    paths = tuple(decoders)
