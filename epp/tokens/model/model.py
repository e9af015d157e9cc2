"""One model's tokenizer and chat templates: from a request's body to the texts to encode, and from these to token ids.

A text that was encoded before is not encoded again: texts are cut where that changes nothing
(``epp.tokens.model.cuts``), and pieces are looked up in a cache. So a conversation that goes on costs only its new end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from epp.errors import ConfigError
from epp.tokens.model.answer import Ids, NoTokenIds
from epp.tokens.model.chat import Chat, Unrendered, described
from epp.tokens.model.segments import Segments
from epp.tokens.model.template import ChatTemplate
from epp.tokens.model.tokenizer_config import DEFAULT, WITH_TOOLS, no_template_for, read_config
from epp.tokens.model.vocabulary import Vocabulary

COMPLETIONS, CHATS = "/completions", "/chat/completions"


class Completion(msgspec.Struct):
    """The fields that determine the prompts of a completion request."""

    prompt: str | list[str]
    suffix: str | None = None
    prompt_embeds: Any = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    kv_transfer_params: dict[str, Any] | None = None


class Text(NamedTuple):
    """A prompt's text to encode."""

    text: str
    special: bool
    """Whether it gets the special tokens that the tokenizer puts around a text."""


class Partly(NamedTuple):
    """Prompts in pieces, some of which were found in the cache."""

    prompts: list[list[bytes | None]]
    """Each prompt's pieces, in order; None for a piece that must be encoded."""
    missing: list[str]
    """The texts of the pieces to encode, in order."""

    @property
    def missing_characters(self) -> int:
        """How many characters must be encoded."""
        return sum(map(len, self.missing))


_CHAT = msgspec.json.Decoder(Chat)
_COMPLETION = msgspec.json.Decoder(Completion)


class ModelTokenizer:
    """Turns requests into token ids as the model's engine does. Any thread may call it."""

    def __init__(
        self,
        folder: Path,
        cache_bytes: int,
        *,
        template: Path | None = None,
        in_parts: bool | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """``template`` and ``arguments`` are those that the engines are started with, if any.

        Raises: ConfigError naming the file.
        """
        config = read_config(folder, template)
        self.vocabulary = Vocabulary(folder / "tokenizer.json", config)
        named = str(template or folder)
        self.no_chats = no_template_for(folder)
        """Why conversations with this model cannot be rendered here; None if they can."""
        self.has_template = bool(config.templates)
        templates = {} if self.no_chats else config.templates
        self._templates = {name: ChatTemplate(source, named, in_parts=in_parts) for name, source in templates.items()}
        if templates and DEFAULT not in templates:
            raise ConfigError(f"{named}: {len(templates)} chat templates, and none is named {DEFAULT!r}")
        self._special = config.special_tokens
        self._arguments = dict(arguments or {})
        self.segments = Segments(cache_bytes)

    def texts(self, path: str, body: bytes, most: int) -> list[Text]:
        """Return the texts that an engine encodes for a request, at most the first ``most``. Raises: Unrendered."""
        try:
            if path.endswith(CHATS):
                return [self._chat(_CHAT.decode(body))]
            if path.endswith(COMPLETIONS):
                return _completion(_COMPLETION.decode(body))[:most]
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Unrendered(NoTokenIds.REFUSED) from error
        raise Unrendered(NoTokenIds.UNSUPPORTED)

    def look_up(self, texts: list[Text]) -> Partly:
        """Cut the texts into pieces, and look these up in the cache."""
        missing: list[str] = []
        prompts = []
        for text in texts:
            pieces: list[bytes | None] = []
            for piece in self.vocabulary.cuts.pieces(text.text):
                ids = self.segments.get(piece)
                pieces.append(ids)
                if ids is None:
                    missing.append(piece)
            prompts.append(pieces)
        return Partly(prompts, missing)

    def encode(self, partly: Partly) -> list[bytes]:
        """Return the token ids of the missing pieces. Raises: Unrendered."""
        try:
            return self.vocabulary.encode(partly.missing) if partly.missing else []
        except Exception as error:  # errors of the library, for example for half a surrogate pair
            raise Unrendered(NoTokenIds.REFUSED) from error

    def put_together(self, texts: list[Text], partly: Partly, encoded: list[bytes]) -> Ids:
        """Return the token ids of all prompts, and cache the pieces that were encoded."""
        put = self.segments.put
        for piece, ids in zip(partly.missing, encoded, strict=True):
            put(piece, ids)
        fresh = iter(encoded)
        vocabulary, whole = self.vocabulary, []
        for text, pieces in zip(texts, partly.prompts, strict=True):
            ids = b"".join([next(fresh) if piece is None else piece for piece in pieces])
            whole.append(vocabulary.before + ids + vocabulary.after if text.special else ids)
        return tuple(whole)

    def _chat(self, chat: Chat) -> Text:
        template = self._templates.get(WITH_TOOLS) if chat.tools is not None else None
        template = template or self._templates.get(DEFAULT)
        if template is None:
            raise Unrendered(NoTokenIds.UNSUPPORTED)
        arguments = chat.arguments(self._arguments)
        tools = None if chat.tools is None else described(chat.tools)
        written = template.write(chat.messages, tools, {**self._special, **arguments})
        return Text(written, chat.add_special_tokens)


def _completion(completion: Completion) -> list[Text]:
    unclear = completion.suffix is not None or completion.prompt_embeds is not None
    if unclear or completion.truncate_prompt_tokens is not None:
        raise Unrendered(NoTokenIds.UNSUPPORTED)
    if "prompt_token_ids" in (completion.kv_transfer_params or ()):
        raise Unrendered(NoTokenIds.UNSUPPORTED)
    prompts = [completion.prompt] if isinstance(completion.prompt, str) else completion.prompt
    return [Text(prompt, completion.add_special_tokens) for prompt in prompts]
