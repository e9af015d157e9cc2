"""Our lines where vLLM's are."""

from __future__ import annotations

import logging


def join_vllm() -> None:
    """Have vLLM's handlers write our lines, too, from vLLM's level on, unless somebody has given us handlers.

    vLLM sets up its own logger only, and leaves the root logger as it is: without this nobody writes our INFO lines.
    """
    ours, theirs = logging.getLogger("kvengine"), logging.getLogger("vllm")
    if ours.handlers or not theirs.handlers:
        return
    for handler in theirs.handlers:
        ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
    ours.propagate = False  # as theirs: no line is written twice
