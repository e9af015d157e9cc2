"""The command's own picker, within reach of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from epp.server.app import App
from epp.standalone.command import start_picker
from epp.standalone.options import StandaloneOptions


def starts(made: list[App]) -> Callable[[StandaloneOptions], Awaitable[App]]:
    """Starts a picker as the command does, and notes it in ``made``."""

    async def start(options: StandaloneOptions) -> App:
        made.append(await start_picker(options))
        return made[-1]

    return start
