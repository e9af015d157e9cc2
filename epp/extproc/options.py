"""The options of refusals."""

from __future__ import annotations

from enum import Enum


class ErrorFormat(Enum):
    """How a refusal is written."""

    TEXT = "text"
    """A line of text for every API: the Go picker's."""
    API = "api"
    """As the client's API writes its errors, so that its SDK shows the sentence."""
