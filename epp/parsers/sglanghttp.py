"""The ``sglanghttp-parser``, which reads SGLang's own ``/generate``.

Source: SGLang's ``GenerateReqInput``: a text or token ids, one prompt or a batch; ``extra_key`` is its cache salt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.canonical import ABSENT, Rendered, apart
from epp.parsers.json_body import Body, JsonParser
from epp.parsers.media import AUDIO_TOKENS, IMAGE_TOKENS, VIDEO_TOKENS, items_in
from epp.parsers.texts import Texts, render_texts, with_more

MEDIA_TOKENS = (IMAGE_TOKENS, VIDEO_TOKENS, AUDIO_TOKENS)


class Generate(Body):
    """The body of POST /generate.

    The API has no model field: one server has one model, and adapters by ``lora_path``.
    """

    names_model: ClassVar[bool] = False

    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    extra_key: msgspec.Raw = ABSENT
    lora_path: msgspec.Raw = ABSENT
    image_data: msgspec.Raw = ABSENT
    video_data: msgspec.Raw = ABSENT
    audio_data: msgspec.Raw = ABSENT

    @override
    def prompts(self, stranger: bytes = b"") -> list[Rendered]:
        if (self.text is None) == (self.input_ids is None):
            raise BadRequest("one of `text` and `input_ids` must hold the prompt")
        given, field = (self.text, "text") if self.input_ids is None else (self.input_ids, "input_ids")
        media = (self.image_data, self.video_data, self.audio_data)
        rendered = render_texts(cast("Texts", given), field)
        tokens = sum([items_in(raw) * each for raw, each in zip(media, MEDIA_TOKENS, strict=True)])
        apart_from_others = [
            one._replace(kind=apart(one.kind, self.extra_key, self.lora_path, *media)) for one in rendered
        ]
        return with_more(apart_from_others, rendered[-1].more_tokens + tokens)


class SGLangHttpParser(JsonParser):
    """Reads requests to ``/generate``."""

    type_name = "sglanghttp-parser"
    decoders: ClassVar[Mapping[str, msgspec.json.Decoder[Body]]] = {"/generate": msgspec.json.Decoder(Generate)}
    paths = tuple(decoders)
