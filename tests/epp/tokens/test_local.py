"""The work that a tokenizer in this process does at once, and the work of its thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epp.tokens.local import AT_ONCE_OBJECTS, AT_ONCE_PROMPTS, LocalSource
from epp.tokens.model.answer import Answer
from epp.tokens.model.model import ModelTokenizer
from epp.tokens.source import TokenRequest

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
MESSAGE = {"role": "user", "content": ""}
TOOL = {"type": "function", "function": {"name": "a"}}


@pytest.mark.parametrize(
    ("path", "body", "prompts", "at_once"),
    [
        (CHAT, {"messages": [MESSAGE] * 20}, 1, True),
        (CHAT, {"messages": [MESSAGE] * (AT_ONCE_OBJECTS + 1)}, 1, False),
        (CHAT, {"messages": [MESSAGE], "tools": [TOOL] * AT_ONCE_OBJECTS}, 1, False),
        (COMPLETION, {"prompt": ["x"] * AT_ONCE_PROMPTS}, AT_ONCE_PROMPTS, True),
        (COMPLETION, {"prompt": ["x"] * (AT_ONCE_PROMPTS + 1)}, AT_ONCE_PROMPTS + 1, False),
    ],
)
def test_short_bodies_of_many_parts_are_a_threads_work(
    path: str, body: dict[str, Any], prompts: int, at_once: bool, trained: Callable[[str], Path]
) -> None:
    async def run() -> None:
        source = LocalSource({"": ModelTokenizer(trained("chatml"), 1 << 20)})
        asked = TokenRequest(path, json.dumps(body).encode(), "m", prompts)
        answer = source.now(asked)
        assert isinstance(answer, tuple) == at_once
        if not at_once:
            heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            source.later(asked, heard.set_result)
            answer = await asyncio.wait_for(heard, 20)
        assert isinstance(answer, tuple)
        assert len(answer) == prompts
        await source.close()

    asyncio.run(run())
