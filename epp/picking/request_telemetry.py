"""What is told of every request to whoever counts."""

from __future__ import annotations

from typing import Protocol

from epp.decision import Outcome, RequestLabels
from epp.picking.profile import Timer
from scorers.base import Candidate, Request


class RequestTelemetry(Protocol):
    """What is reported of every request: ``epp.metrics``. All O(1)."""

    def request_received(self, labels: RequestLabels, size_bytes: int) -> None:
        """A request was understood."""

    def decided(self, labels: RequestLabels, request: Request, candidate: Candidate, seconds: float) -> None:
        """It goes to ``candidate``; hashing, scoring, picking and recording took ``seconds``."""

    def refused(self, labels: RequestLabels, code: str) -> None:
        """It goes nowhere."""

    def plugin(self, extension_point: str, plugin_type: str, plugin_name: str) -> Timer:
        """Who counts the runs of one plugin."""

    def ended(self, labels: RequestLabels, outcome: Outcome) -> None:
        """It has ended."""

    def request_processing(self, seconds: float) -> None:
        """Time spent on one request's request messages."""

    def response_processing(self, seconds: float) -> None:
        """Time spent on one request's response messages."""
