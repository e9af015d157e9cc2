"""Writes this package's log lines where vLLM's go."""

from __future__ import annotations

import logging
from copy import copy

from typing_extensions import override


class Forwarding(logging.Handler):
    """Forwards log records to the handlers of another logger, with the package's name in front of each message.

    vLLM's format does not include the logger's name, and a file of this package may have the same name as one of
    vLLM's.
    """

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
    """Let vLLM's handlers write this package's log lines, from vLLM's level on.

    Does nothing if this package's logger has handlers already. vLLM sets up its own logger only and leaves the root
    logger as it is: without this, INFO lines of this package would not be written.
    """
    ours, theirs = logging.getLogger("kvengine"), logging.getLogger("vllm")
    if ours.handlers or not theirs.handlers:
        return
    ours.addHandler(Forwarding(theirs))
    if ours.level == logging.NOTSET:
        ours.setLevel(theirs.level)
    ours.propagate = False  # like vLLM's logger, so that no line is written twice
