"""One model's tokenizer and chat templates: a request's body to the texts that are encoded, and those to token ids.

What was encoded before is not encoded again: a text is cut where that changes nothing (``epp.tokens.model.cuts``), and
pieces that are known are looked up. So a conversation that goes on costs its new end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from epp.errors import ConfigError
from epp.tokens.model.chat import Chat, Unrendered, described
from epp.tokens.model.segments import Segments
from epp.tokens.model.template import ChatTemplate
from epp.tokens.model.tokenizer_config import DEFAULT, WITH_TOOLS, no_template_for, read_config
from epp.tokens.model.vocabulary import Vocabulary
from epp.tokens.source import Ids, Untold

COMPLETIONS, CHATS = "/completions", "/chat/completions"


class Completion(msgspec.Struct):
    """What the prompts of a completion request depend on."""

    prompt: str | list[str]
    suffix: str | None = None
    prompt_embeds: Any = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    kv_transfer_params: dict[str, Any] | None = None


class Text(NamedTuple):
    """A prompt to encode."""

    text: str
    special: bool
    """Whether it gets what the tokenizer puts around a text."""


class Partly(NamedTuple):
    """Prompts of which some pieces are known."""

    prompts: list[list[bytes | None]]
    """Each prompt's pieces, in order; None for one to encode."""
    missing: list[str]
    """The texts of those, in order."""

    @property
    def missing_characters(self) -> int:
        """How much is to be encoded."""
        return sum(map(len, self.missing))


_CHAT = msgspec.json.Decoder(Chat)
_COMPLETION = msgspec.json.Decoder(Completion)


class ModelTokenizer:
    """What a model's engine makes of a request. Any thread may call it."""

    def __init__(
        self,
        folder: Path,
        cache_bytes: int,
        *,
        template: Path | None = None,
        in_parts: bool | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """``template`` and ``arguments`` are as the engines are started with, where they are.

        Raises: ConfigError naming the file.
        """
        config = read_config(folder, template)
        self.vocabulary = Vocabulary(folder / "tokenizer.json", config)
        named = str(template or folder)
        self.no_chats = no_template_for(folder)
        """Why no conversation with it is written here, if none is."""
        self.has_template = bool(config.templates)
        templates = {} if self.no_chats else config.templates
        self._templates = {name: ChatTemplate(source, named, in_parts=in_parts) for name, source in templates.items()}
        if templates and DEFAULT not in templates:
            raise ConfigError(f"{named}: {len(templates)} chat templates, and none is named {DEFAULT!r}")
        self._special = config.special_tokens
        self._arguments = dict(arguments or {})
        self.segments = Segments(cache_bytes)

    def texts(self, path: str, body: bytes, most: int) -> list[Text]:
        """What an engine encodes for a request, at most the first ``most`` prompts. Raises: Unrendered."""
        try:
            if path.endswith(CHATS):
                return [self._chat(_CHAT.decode(body))]
            if path.endswith(COMPLETIONS):
                return _completion(_COMPLETION.decode(body))[:most]
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Unrendered(Untold.REFUSED) from error
        raise Unrendered(Untold.UNSUPPORTED)

    def look_up(self, texts: list[Text]) -> Partly:
        """What is known of ``texts`` already."""
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
        """The token ids of what is missing. Raises: Unrendered."""
        try:
            return self.vocabulary.encode(partly.missing) if partly.missing else []
        except Exception as error:  # of the library's; a text with half a character, say
            raise Unrendered(Untold.REFUSED) from error

    def put_together(self, texts: list[Text], partly: Partly, encoded: list[bytes]) -> Ids:
        """All prompts' token ids; what was encoded is remembered."""
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
            raise Unrendered(Untold.UNSUPPORTED)
        arguments = chat.arguments(self._arguments)
        tools = None if chat.tools is None else described(chat.tools)
        written = template.write(chat.messages, tools, {**self._special, **arguments})
        return Text(written, chat.add_special_tokens)


def _completion(completion: Completion) -> list[Text]:
    unclear = completion.suffix is not None or completion.prompt_embeds is not None
    if unclear or completion.truncate_prompt_tokens is not None:
        raise Unrendered(Untold.UNSUPPORTED)
    if "prompt_token_ids" in (completion.kv_transfer_params or ()):
        raise Unrendered(Untold.UNSUPPORTED)
    prompts = [completion.prompt] if isinstance(completion.prompt, str) else completion.prompt
    return [Text(prompt, completion.add_special_tokens) for prompt in prompts]
