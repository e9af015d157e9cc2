"""Requests for a planner, by name."""

from __future__ import annotations

from kvengine.request_state import RequestState


class Requests(dict[str, RequestState]):
    """Creates each request when a test first names it. Its first blocks were allocated before any ``clear``."""

    def __missing__(self, name: str) -> RequestState:
        state = self[name] = RequestState(name, epoch=0)
        return state
