"""Our lines where vLLM's are."""

from __future__ import annotations

import logging
from copy import copy

from typing_extensions import override


class Forwarding(logging.Handler):
    """Has the handlers of another logger write our lines, each with our name in front: vLLM's format names no logger,
    and a file of ours may be called as one of vLLM's is."""

    def __init__(self, to: logging.Logger) -> None:
        super().__init__()
        self._to = to

    @override
    def emit(self, record: logging.LogRecord) -> None:
        named = copy(record)
        named.msg = f"kvengine: {record.msg}"
        for handler in self._to.handlers:
            if named.levelno >= handler.level:
                handler.handle(named)


def join_vllm() -> None:
    """Have vLLM's handlers write our lines, too, from vLLM's level on, unless somebody has given us handlers.

    vLLM sets up its own logger only, and leaves the root logger as it is: without this nobody writes our INFO lines.
    """
    ours, theirs = logging.getLogger("kvengine"), logging.getLogger("vllm")
    if ours.handlers or not theirs.handlers:
        return
    ours.addHandler(Forwarding(theirs))
    if ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
    ours.propagate = False  # as theirs: no line is written twice
