"""What images, audio and video weigh."""

from __future__ import annotations

import json

import pytest

from epp.parsers.anthropic import AnthropicParser
from epp.parsers.base import Parsed
from epp.parsers.media import AUDIO_TOKENS, IMAGE_TOKENS, MOST_FILLED_BYTES, VIDEO_TOKENS
from epp.parsers.openai import OpenAIParser
from epp.parsers.sglanghttp import SGLangHttpParser
from scorers.base import Slot
from scorers.index.index import PrefixIndex

URL = {"url": "http://10.0.0.1/a.png"}


def chat(*parts: dict[str, object]) -> Parsed:
    body = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    return OpenAIParser().parse("/v1/chat/completions", json.dumps(body).encode())


def image(number: int) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"http://10.0.0.1/{number}.png"}}


def test_thousands_of_images_count_with_the_tokens_that_engines_make_of_them() -> None:
    many = chat(*[image(number) for number in range(9_990)])
    assert many.prompt_tokens == pytest.approx(9_990 * 225, rel=0.001)
    assert len(many.prompts[0].data) < MOST_FILLED_BYTES + 500_000, "what stands for them is bounded"


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": URL}, IMAGE_TOKENS),
        ({"type": "image_embeds", "image_embeds": "AAAA"}, IMAGE_TOKENS),
        ({"type": "input_audio", "input_audio": {"data": "AAAA"}}, AUDIO_TOKENS),
        ({"type": "audio_url", "audio_url": URL}, AUDIO_TOKENS),
        ({"type": "audio_embeds", "audio_embeds": "AAAA"}, AUDIO_TOKENS),
        ({"type": "video_url", "video_url": URL}, VIDEO_TOKENS),
        ({"type": "image_url", "image_url": None, "uuid": "a"}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": URL, "uuid": "a"}, IMAGE_TOKENS + 9),
        ({"type": "file", "file_id": "a"}, 9),
    ],
)
def test_media_count_by_their_kind(part: dict[str, object], tokens: int) -> None:
    before, after = chat({"type": "text", "text": "x"}), chat({"type": "text", "text": "x"}, part)
    assert after.prompt_tokens - before.prompt_tokens == pytest.approx(tokens, abs=1)


def test_an_image_of_an_anthropic_message_counts_as_any_other() -> None:
    content = [{"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}}]
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    parsed = AnthropicParser().parse("/v1/messages", json.dumps(body).encode())
    assert IMAGE_TOKENS <= parsed.prompt_tokens < IMAGE_TOKENS + 5


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"image_data": "a"}, IMAGE_TOKENS),
        ({"image_data": ["a", None, "b"]}, 2 * IMAGE_TOKENS),
        ({"image_data": [["a", "b"], ["c"]], "audio_data": ["d"]}, 3 * IMAGE_TOKENS + AUDIO_TOKENS),
        ({"video_data": {"url": "[a"}}, VIDEO_TOKENS),
        ({"image_data": None}, 0),
    ],
)
def test_media_beside_the_prompt_count_too(fields: dict[str, object], tokens: int) -> None:
    parsed = SGLangHttpParser().parse("/generate", json.dumps({"text": "x" * 40, **fields}).encode())
    assert parsed.prompt_tokens == 10 + tokens


def test_of_a_large_batch_for_sglang_all_prompts_count() -> None:
    parsed = SGLangHttpParser().parse("/generate", json.dumps({"text": ["x" * 40] * 500}).encode())
    assert parsed.prompt_tokens == 5_000


def test_an_image_takes_as_much_of_a_cache_as_it_has_tokens() -> None:
    index = PrefixIndex()
    index.set_capacity(Slot(0), 0, 10**6)
    first, further = chat(image(1), image(2)), chat(image(1), image(2), image(3))
    index.record(index.match(first.prompts[0]), Slot(0))
    assert index.tokens(Slot(0), 0) == 2 * IMAGE_TOKENS // index.block_tokens * index.block_tokens
    found = index.match(further.prompts[0])
    assert found.held[0][Slot(0)] / found.total_tokens == pytest.approx(2 / 3, abs=0.1)
