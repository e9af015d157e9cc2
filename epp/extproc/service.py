"""The ext-proc service: decodes messages, reads the clock, and ends a stream that fails without harm to others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from google.protobuf.message import DecodeError

from epp.decision import RequestLabels
from epp.errors import EppError
from epp.extproc.body_budget import BodyBudget
from epp.extproc.exchange import Exchange, ProtocolViolation
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.picking.director import Director
from epp.wire.service import Call, Methods, Status

log = logging.getLogger(__name__)

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def methods(
    director: Director,
    settings: ExchangeSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
    bodies: BodyBudget | None = None,
) -> Methods:
    """Return the ext-proc service, to be hosted by a transport; ``bodies`` limits the bytes of all its requests."""
    chosen, budget = settings or ExchangeSettings(), bodies or BodyBudget()
    return {PROCESS: lambda call: ExtProcHandler(call, director, chosen, clock, budget)}


class ExtProcHandler:
    """The shell of one exchange: one stream with its call. Owner: the event loop.

    An exception in one stream ends that stream only.
    """

    def __init__(
        self,
        call: Call,
        director: Director,
        settings: ExchangeSettings,
        clock: Callable[[], float],
        bodies: BodyBudget,
    ) -> None:
        self._call = call
        self._director = director
        self._clock = clock
        self._exchange = Exchange(director, settings, self._resumed, bodies)
        self._request_s = 0.0
        self._response_s = 0.0
        self._closed = False

    def received(self, message: bytes) -> None:
        """Answer one message of the proxy."""
        now = self._clock()
        try:
            self._answer(now, lambda: self._exchange.received(ProcessingRequest.FromString(message), now))
        except DecodeError:
            self._end(now, Status.INVALID_ARGUMENT, "not a ProcessingRequest")
        except ProtocolViolation as error:
            self._end(now, Status.INVALID_ARGUMENT, str(error))

    def _resumed(self, error: EppError | None) -> None:
        """Answer the message that had to wait, or end a request in flight."""
        now = self._clock()
        self._answer(now, lambda: self._exchange.resumed(error, now))

    def _answer(self, now: float, work: Callable[[], list[bytes]]) -> None:
        """Send what ``work`` returns. Raises: DecodeError, ProtocolViolation."""
        try:
            answers = work()
        except (DecodeError, ProtocolViolation):
            raise
        except Exception:  # one stream must not take the others down
            log.exception("an ext-proc exchange failed; its request gets status 500")
            self._director.telemetry.refused(RequestLabels(), EppError.code)
            answers = self._exchange.refuse(EppError("the picker failed on this request; its log says why"))
        for answer in answers:
            self._call.send(answer)
        spent = self._clock() - now
        if self._exchange.responding:
            self._response_s += spent
        else:
            self._request_s += spent
        if self._exchange.over:
            self._end(now, Status.OK)

    def half_closed(self) -> None:
        """End the exchange, since the proxy sends no more."""
        self._end(self._clock(), Status.OK)

    def cancelled(self) -> None:
        """Close the exchange of a stream that was cancelled."""
        self._close(self._clock())

    def _end(self, now: float, status: Status, text: str = "") -> None:
        if self._close(now):
            self._call.finish(status, text)

    def _close(self, now: float) -> bool:
        """Settle and count the exchange; returns False if that has already happened."""
        if self._closed:
            return False
        self._closed = True
        self._exchange.closed(now)
        telemetry = self._director.telemetry
        telemetry.request_processing(self._request_s)
        if self._exchange.responding:
            telemetry.response_processing(self._response_s)
        return True
