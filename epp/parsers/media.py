"""What images, audio and video count as, where nothing but their kind is known: engines make tokens of them by their
size and length, which a URL does not say."""

from __future__ import annotations

import msgspec

RAWS = msgspec.json.Decoder(list[msgspec.Raw])

IMAGE_TOKENS = 225
"""Of an image of 640 x 360, 32 x 32 pixels to a token, which the Go picker takes all images for that it cannot see."""
AUDIO_TOKENS = 750
"""Guess: half a minute, 25 tokens a second (Qwen2-Audio's pace)."""
VIDEO_TOKENS = 2_250
"""Guess: ten seconds, one picture of IMAGE_TOKENS a second (Qwen3-VL merges two in a row of two a second)."""
MOST_FILLED_BYTES = 4 << 20
"""Of a request's media, so much is repeated digests, a million tokens; of more, the tokens only count. Guess: more than
any engine takes."""

MOST_MEDIA = 10_000
"""Images, files, thoughts and names of such: each costs a digest. Guess: more than any engine takes."""

TAGGED = (
    ("image_url", b"I", IMAGE_TOKENS),
    ("input_audio", b"A", AUDIO_TOKENS),
    ("audio_url", b"U", AUDIO_TOKENS),
    ("video_url", b"V", VIDEO_TOKENS),
    ("image_embeds", b"E", IMAGE_TOKENS),
    ("audio_embeds", b"B", AUDIO_TOKENS),
    ("thinking", b"H", 0),
    ("file", b"F", 0),
    ("file_data", b"D", 0),
    ("file_url", b"L", 0),
    ("file_id", b"J", 0),
)
"""The fields of a content's part that name media, their tags, and their tokens: 0 where the name is all that counts."""


def items_in(given: msgspec.Raw) -> int:
    """How many images (or the like) a field's JSON names: one, a list of them, or for a batch a list of such lists."""
    if not _is_list(given):
        return int(_is_one(given))
    items = RAWS.decode(given)
    lists = [RAWS.decode(item) for item in items if _is_list(item)]
    return sum([_is_one(item) for item in items if not _is_list(item)]) + sum(map(len, lists))


def _is_list(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["


def _is_one(raw: msgspec.Raw) -> bool:
    return bool(memoryview(raw)) and bytes(memoryview(raw)[:4]) != b"null"
