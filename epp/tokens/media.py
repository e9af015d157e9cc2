"""Detects images, sound and the like in a request, whose tokens only the engine knows, by their JSON keys and types."""

from __future__ import annotations

import asyncio
import re

MEDIA = re.compile(
    rb'"(?:image_url|input_image|image_embeds|input_audio|audio_url|audio_embeds|video_url|video_embeds|prompt_embeds)"'
    rb'|"type"\s*:\s*"(?:image|document|audio|video)"'
)
AT_ONCE_BYTES = 1 << 16
"""Bytes searched in one go: 2 ms if there is nothing but quotes, 0.02 ms for other text."""
OVERLAP_BYTES = 64
"""More bytes than any such key takes, written without much whitespace."""


def begins_with_media(body: bytes) -> bool:
    """Return whether media occur in the first ``AT_ONCE_BYTES``, which is all of most bodies."""
    return MEDIA.search(body, 0, AT_ONCE_BYTES + OVERLAP_BYTES) is not None


async def goes_on_with_media(body: bytes) -> bool:
    """Return whether media occur later. Yields to the event loop between pieces."""
    for begin in range(AT_ONCE_BYTES, len(body), AT_ONCE_BYTES):
        await asyncio.sleep(0)
        if MEDIA.search(body, begin, begin + AT_ONCE_BYTES + OVERLAP_BYTES):
            return True
    return False
