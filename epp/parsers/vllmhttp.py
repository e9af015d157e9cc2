"""The ``vllmhttp-parser``: vLLM's own HTTP API, and the OpenAI API that it has as well.

Source: vLLM's ``/inference/v1/generate`` (tokens in, tokens out), as of version 0.32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.canonical import ABSENT, Rendered, apart, render_tokens
from epp.parsers.json_body import Body, JsonParser
from epp.parsers.openai import OpenAIParser


class Features(msgspec.Struct):
    """The fields that stand for media among the token ids."""

    mm_hashes: msgspec.Raw = ABSENT
    mm_placeholders: msgspec.Raw = ABSENT


class Generate(Body):
    """The body of POST /inference/v1/generate."""

    token_ids: list[int] | None = None
    features: Features | None = None

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if not self.token_ids:
            raise BadRequest("`token_ids` must hold at least one token id")
        rendered = render_tokens(self.token_ids, "token_ids")
        if self.features is None:
            return [rendered]
        # The placeholders' ids are the same for every picture, so such a prompt shares its prefix only with prompts
        # that have the same media.
        return [Rendered(apart(b"tokens", self.features.mm_hashes, self.features.mm_placeholders), rendered.data)]


class VllmHttpParser(JsonParser):
    """Reads ``/inference/v1/generate`` and all paths of ``openai-parser``, so that one parser may be named for both."""

    type_name = "vllmhttp-parser"
    decoders: ClassVar[Mapping[str, msgspec.json.Decoder[Body]]] = {
        "/inference/v1/generate": msgspec.json.Decoder(Generate),
        **OpenAIParser.decoders,
    }
    paths = tuple(decoders)
