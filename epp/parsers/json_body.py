"""JSON request bodies, decoded into typed structs that name only what routing needs; the rest is skipped, not built."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.base import UNREAD, Parsed, Parser
from epp.parsers.by_path import LONGEST_SHOWN, longest_suffix
from epp.parsers.canonical import Rendered, Unfamiliar, digest_of
from epp.parsers.identity import identity
from epp.parsers.rewrite import with_model
from epp.parsers.structure import check_structure
from scorers.base import NoParameters, Prompt

LONGEST_MODEL = 1024
"""Maximum length of a model's name, in characters."""


class Body(msgspec.Struct):
    """The fields that most APIs have in common."""

    computes: ClassVar[bool] = True
    """Whether the engine computes KV for it."""
    names_model: ClassVar[bool] = True
    """Whether a body without a model is refused; if not, any model that the body names is left alone."""
    must_be_read: ClassVar[bool] = True
    """Whether a body that cannot be parsed is refused; if not, it passes unread, for the engine to refuse."""

    model: str | None = None
    stream: bool | None = None
    cache_salt: str | None = None

    @abstractmethod
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        """Return at least one prompt, with ``stranger`` in place of unknown content.

        Raises: BadRequest naming the field without a prompt; Unfamiliar if ``stranger`` is needed and empty;
        UnicodeDecodeError.
        """


class JsonParser(Parser[NoParameters]):
    """Reads bodies with ``decoders``, which map the ending of a path to the shape of its bodies."""

    decoders: ClassVar[Mapping[str, msgspec.json.Decoder[Body]]]
    requires_model: ClassVar[bool] = True

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._decoder_for = lru_cache(maxsize=256)(self._find)

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        decoder = self._decoder_for(path)
        try:
            return self._read(decoder, body, target_model)
        except BadRequest:
            if decoder.type.must_be_read:
                raise
            return UNREAD

    def _read(self, decoder: msgspec.json.Decoder[Body], body: bytes, target_model: str | None) -> Parsed:
        read = decode(decoder, body)
        model, target = models(read, target_model, required=self.requires_model)
        try:
            try:
                rendered = read.prompts()
            except Unfamiliar:
                # Only the engine may know this content. A digest of the whole body stands for it, since two prompts
                # that differ in nothing else must not look alike.
                rendered = read.prompts(digest_of(body))
        except UnicodeError as error:
            raise BadRequest(f"the request body is not UTF-8: {error}") from error
        salt = read.cache_salt
        prompts = [Prompt(identity(one.kind, target, salt), one.data) for one in rendered] if read.computes else []
        return Parsed(
            model,
            target,
            tuple(prompts),
            max(1, sum([one.tokens for one in rendered])) if prompts else 1,
            bool(read.stream),
            with_model(body, target, named=True) if target != model else None,
        )

    def _find(self, path: str) -> msgspec.json.Decoder[Body]:
        suffix = longest_suffix(path, self.decoders)
        if suffix is None:
            known = ", ".join(self.decoders)
            raise BadRequest(
                f"no parser for path {path[:LONGEST_SHOWN]!r}; {self.type_name} reads paths that end in {known}"
            )
        return self.decoders[suffix]


def decode(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    """Decode ``body``. Raises: BadRequest for whatever is wrong with it."""
    check_structure(body)
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


def models(read: Body, target_model: str | None, *, required: bool) -> tuple[str, str]:
    """Return the client's model and the one for the engine. Raises: BadRequest if it is missing or too long."""
    if not read.names_model:
        return "", ""
    if not read.model:
        if not required:
            return "", ""
        raise BadRequest("model not found in request body")
    if len(read.model) > LONGEST_MODEL:
        raise BadRequest(f"`model` has {len(read.model):,} characters; at most {LONGEST_MODEL:,} are read")
    target = target_model or read.model
    if len(target) > LONGEST_MODEL:
        raise BadRequest(f"the rewritten model has {len(target):,} characters; at most {LONGEST_MODEL:,} are sent")
    return read.model, target
