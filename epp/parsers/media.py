"""How many tokens images, audio and video count as, if nothing but their kind is known.

Engines derive the tokens from the size and length of media, which a URL does not show.
"""

from __future__ import annotations

import msgspec

RAWS = msgspec.json.Decoder(list[msgspec.Raw])

IMAGE_TOKENS = 225
"""The tokens of an image of 640 x 360, with 32 x 32 pixels per token. The Go picker assumes this size for all images
that it cannot inspect.
"""
AUDIO_TOKENS = 750
"""Guess: half a minute, at 25 tokens a second (Qwen2-Audio's rate)."""
VIDEO_TOKENS = 2_250
"""Guess: ten seconds, at one picture of IMAGE_TOKENS a second (Qwen3-VL takes two a second, and merges each pair)."""
MOST_FILLED_BYTES = 4 << 20
"""Maximum number of bytes of repeated digests for a request's media: a million tokens. Beyond that, tokens are only
counted. Guess: more than any engine takes.
"""

MOST_MEDIA = 10_000
"""Maximum number of images, files, thoughts and their ids: each costs a digest. Guess: more than any engine takes."""

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
"""The fields of a content part that hold media, their tags, and their tokens: 0 if only the digest counts."""


def items_in(given: msgspec.Raw) -> int:
    """Return how many images (or other media) a field holds: one, a list of them, or a batch of such lists."""
    if not _is_list(given):
        return int(_is_one(given))
    items = RAWS.decode(given)
    lists = [RAWS.decode(item) for item in items if _is_list(item)]
    return sum([_is_one(item) for item in items if not _is_list(item)]) + sum(map(len, lists))


def _is_list(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["


def _is_one(raw: msgspec.Raw) -> bool:
    return bool(memoryview(raw)) and bytes(memoryview(raw)[:4]) != b"null"
