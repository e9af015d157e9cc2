"""The response half of an exchange: watched to its end, and changed where there is something to change."""

from __future__ import annotations

from epp.decision import Cause, Decision, Outcome
from epp.extproc import messages
from epp.extproc.observer import Observer
from epp.extproc.options import ExchangeSettings
from epp.extproc.response_changes import ResponseChanges, changes_to
from epp.extproc.transitions import FULL_DUPLEX, NONE, Mode
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.picking.picks import Picks


class Response:
    """Owner: its exchange, which calls what the order of messages allows (``epp.extproc.transitions``).

    Invariant: at most one pick is open; by the time ``closed`` returns it is ended or left to the access log.
    """

    __slots__ = ("_announced", "_changes", "_mode", "_pick", "_picks", "_settings")

    def __init__(self, picks: Picks, settings: ExchangeSettings) -> None:
        self._picks = picks
        self._settings = settings
        self._mode: Mode = FULL_DUPLEX
        """How the proxy sends the body."""
        self._announced = False
        """Whether the proxy has announced that it sends the body."""
        self._pick: Observer | None = None
        self._changes: ResponseChanges | None = None

    @property
    def seen(self) -> bool:
        """Whether the proxy sends the response's body; without an announcement it does."""
        return self._mode != NONE

    def announce(self, mode: Mode) -> None:
        """Take the mode that the proxy has announced for the body."""
        self._mode = mode
        self._announced = mode != NONE

    def expect(self, decision: Decision, began: float) -> None:
        """Watch for the response to ``decision``, whose request arrived at ``began``."""
        streaming = decision.request is not None and decision.request.streaming
        self._pick = Observer(decision.pick_id, began, streaming=streaming)
        self._changes = changes_to(decision, reports=self._picks.reports_usage)

    def headers(self, message: ProcessingRequest, now: float, *, ends: bool) -> list[bytes]:
        """Return the answers to the headers; ``ends``: nothing follows them."""
        answer, changes = messages.CONTINUE_RESPONSE_HEADERS, self._changes
        if changes is not None:
            self._mode = changes.read_headers(message, self._mode, may_ask=self._settings.may_ask)
            answer = changes.header_answer()
            if changes.compressed:
                self._picks.keeps_name()
        if self._pick is not None and (ends or not self._left_to_log()):
            self._pick.headers(message)
            if (address := self._pick.served_by) is not None:
                self._picks.served_by(self._pick.pick_id, address, now)
        if ends:
            if self._pick is not None:
                self._pick.no_body()
            self._settle(Cause.COMPLETED, now)
        return [answer]

    def body(self, piece: bytes, now: float, *, ends: bool) -> list[bytes]:
        """Return the answers to a piece of the body."""
        if self._pick is not None:
            begins = self._pick.body(piece, now)
            if begins:
                self._picks.answering(self._pick.pick_id)
        outcome = self._settle(Cause.COMPLETED, now) if ends else None
        if self._changes is not None:
            return self._with_reports(self._changes.body_answers(piece, self._mode, ends=ends), outcome)
        if self._mode != FULL_DUPLEX:
            return [messages.CONTINUE_RESPONSE_BODY]
        return messages.chunks("response_body", piece, end_of_stream=ends)

    def trailers(self, message: ProcessingRequest, now: float) -> list[bytes]:
        """Return the answers to trailers."""
        if self._pick is not None:
            self._pick.trailers(message)
        outcome = self._settle(Cause.COMPLETED, now)
        if self._changes is not None:
            return self._with_reports(self._changes.trailer_answers(self._mode), outcome)
        return [messages.CONTINUE_RESPONSE_TRAILERS]

    def evict(self, code: str, now: float) -> bool:
        """End the pick before its response has begun; False if none is open."""
        if self._pick is None:
            return False
        pick, self._pick = self._pick, None
        outcome = pick.ended(Cause.EVICTED, now)
        outcome.unanswered = outcome.streaming
        outcome.errors.append(code)
        self._picks.ended(pick.pick_id, outcome)
        return True

    def closed(self, now: float, *, unfinished: bool) -> None:
        """End the pick with its stream; ``unfinished``: its response has begun and was not seen to end.

        Does nothing the second time.
        """
        if self._pick is not None and self._left_to_log():
            self._picks.left(self._pick.pick_id, now)
            self._pick = None
        # If the proxy keeps bodies to itself, the headers are all that is seen of the response.
        unwatched = unfinished and not self.seen
        self._settle(Cause.COMPLETED if unwatched else Cause.DISCONNECTED, now)

    def _left_to_log(self) -> bool:
        """Whether the access log will report the response's end, and more of it than this stream."""
        return self._settings.access_log and self._mode == NONE

    def _with_reports(self, answers: list[bytes], outcome: Outcome | None) -> list[bytes]:
        """Return ``answers``, with what plugins report to the proxy of the ``outcome`` behind the last one."""
        if self._changes is not None and self._changes.reports and outcome is not None and outcome.usage is not None:
            answers[-1] += messages.reported(self._picks.reports(outcome.usage))
        return answers

    def _settle(self, cause: Cause, now: float) -> Outcome | None:
        """End the pick, if one is open, and return what was seen."""
        pick, self._pick = self._pick, None
        if pick is None:
            return None
        outcome = pick.ended(cause, now)
        gone = cause is not Cause.COMPLETED and self._announced
        outcome.unanswered = gone and outcome.streaming and outcome.ttft_s is None
        self._picks.ended(pick.pick_id, outcome)
        return outcome
