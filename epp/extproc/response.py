"""The response half of an exchange: watched to its end, and changed where there is something to change."""

from __future__ import annotations

from epp.decision import Cause, Decision, Outcome
from epp.extproc import messages
from epp.extproc.observer import Observer
from epp.extproc.options import ExchangeSettings
from epp.extproc.pending_answer import ProtocolViolation, Side
from epp.extproc.response_changes import Mode, Reply, reply_to
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.director import Director

FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
NONE = ProcessingMode.NONE


class Response:
    """Owner: its exchange.

    Invariant: at most one pick is open; by the time ``closed`` returns it is ended or left to the access log.
    """

    __slots__ = ("_director", "_pick", "_reply", "_settings", "_side", "mode", "shown")

    def __init__(self, director: Director, settings: ExchangeSettings) -> None:
        self.mode: Mode = FULL_DUPLEX
        """How the proxy sends the body."""
        self.shown = False
        """Whether it has said that it does."""
        self._director = director
        self._settings = settings
        self._side = Side.UNSEEN
        self._pick: Observer | None = None
        self._reply: Reply | None = None

    @property
    def begun(self) -> bool:
        """Whether any of it was seen."""
        return self._side is not Side.UNSEEN

    def expect(self, decision: Decision, began: float) -> None:
        """It is the answer to ``decision``, for a request that arrived at ``began``."""
        streaming = decision.request is not None and decision.request.streaming
        self._pick = Observer(decision.pick_id, began, streaming=streaming)
        self._reply = reply_to(decision, reports=self._director.reports_usage)

    def headers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """The answers. Raises: ProtocolViolation, here and below."""
        if self.begun:
            raise ProtocolViolation("response headers twice")
        self._side = Side.OPEN
        ends = message.response_headers.end_of_stream
        answer, reply = messages.CONTINUE_RESPONSE_HEADERS, self._reply
        if reply is not None:
            answer, self.mode = reply.answer_headers(message, self.mode, may_ask=self._settings.may_ask)
            self._director.names_kept += reply.compressed
        if self._pick is not None and (ends or not self._left_to_log()):
            self._pick.headers(message)
            if (address := self._pick.served_by) is not None:
                self._director.picks.served_by(self._pick.pick_id, address, now)
        if ends:
            if self._pick is not None:
                self._pick.no_body()
            self._complete(now)
        return [answer]

    def body(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """The answers to a piece of the body."""
        self._expect_open(message)
        part = message.response_body.body
        ends = message.response_body.end_of_stream
        if self._pick is not None:
            answering = self._pick.answering
            self._pick.body(part, now)
            if self._pick.answering and not answering:
                self._director.picks.answering(self._pick.pick_id)
        outcome = self._complete(now) if ends else None
        if self._reply is not None:
            return self._told(self._reply.answer_body(part, self.mode, ends=ends), outcome)
        if self.mode != FULL_DUPLEX:
            return [messages.CONTINUE_RESPONSE_BODY]
        return messages.chunks("response_body", part, end_of_stream=ends)

    def trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """The answers to trailers."""
        self._expect_open(message)
        if self._pick is not None:
            self._pick.trailers(message)
        outcome = self._complete(now)
        if self._reply is not None:
            return self._told(self._reply.answer_trailers(self.mode), outcome)
        return [messages.CONTINUE_RESPONSE_TRAILERS]

    def evict(self, code: str, now: float) -> bool:
        """End the pick, if one is open and nothing of its answer was seen; whether it was."""
        if self._pick is None or self.begun:
            return False
        pick, self._pick = self._pick, None
        outcome = pick.ended(Cause.EVICTED, now)
        outcome.unanswered = outcome.streaming
        outcome.errors.append(code)
        self._director.picks.ended(pick.pick_id, outcome)
        return True

    def closed(self, now: float) -> None:
        """The stream has ended, however it did. Does nothing the second time."""
        if self._pick is not None and self._left_to_log():
            self._director.picks.left(self._pick.pick_id, now)
            self._pick = None
        # When the proxy keeps bodies to itself, its headers are all that will be seen of the end.
        unwatched = self._side is Side.OPEN and self.mode == NONE
        self._settle(Cause.COMPLETED if unwatched else Cause.DISCONNECTED, now)

    def _left_to_log(self) -> bool:
        """Whether the access log will tell when the response ended, and more of it than this stream."""
        return self._settings.access_log and self.mode == NONE

    def _expect_open(self, message: ProcessingRequest) -> None:
        if self._side is not Side.OPEN:
            kind = message.WhichOneof("request")
            raise ProtocolViolation(f"{kind} out of order: the response is {self._side.value}")

    def _told(self, answers: list[bytes], outcome: Outcome | None) -> list[bytes]:
        """``answers``, with what the plugins tell the proxy of the ``outcome`` behind the last one."""
        if self._reply is not None and self._reply.reports and outcome is not None and outcome.usage is not None:
            answers[-1] += messages.reported(self._director.reports(outcome.usage))
        return answers

    def _complete(self, now: float) -> Outcome | None:
        self._side = Side.ENDED
        return self._settle(Cause.COMPLETED, now)

    def _settle(self, cause: Cause, now: float) -> Outcome | None:
        """End the pick, if one is open, and return what was seen."""
        pick, self._pick = self._pick, None
        if pick is None:
            return None
        outcome = pick.ended(cause, now)
        gone = cause is not Cause.COMPLETED and self.shown
        outcome.unanswered = gone and outcome.streaming and outcome.ttft_s is None
        self._director.picks.ended(pick.pick_id, outcome)
        return outcome
