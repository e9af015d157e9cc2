"""Starts the command's own picker where the test can reach it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from epp.server.app import App
from epp.standalone.command import start_picker
from epp.standalone.options import StandaloneOptions


def starts(made: list[App]) -> Callable[[StandaloneOptions], Awaitable[App]]:
    """Return a function that starts a picker as the command does, and appends it to ``made``."""

    async def start(options: StandaloneOptions) -> App:
        made.append(await start_picker(options))
        return made[-1]

    return start
