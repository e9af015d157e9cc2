"""What the picker changes in the response to one pick: headers, and the name of the model."""

from __future__ import annotations

from epp.decision import Decision
from epp.extproc import messages
from epp.extproc.model_renaming import Renamer, renamer
from epp.extproc.observer import CONTENT_ENCODING, CONTENT_TYPE, WATCHED
from epp.extproc.transitions import FULL_DUPLEX, NONE, Mode
from epp.pb.ext_proc_pb2 import ProcessingRequest
from scorers.labels.header_testing import SERVED


class ResponseChanges:
    """The changes to one response. ``read_headers`` comes before any answer. Owner: its exchange."""

    def __init__(self, decision: Decision, *, reports: bool) -> None:
        self.reports = reports
        """Whether the proxy is sent a report when the response has ended."""
        self.compressed = False
        """Whether the response keeps the engine's name of the model, for it is compressed."""
        self._headers = decision.response_headers
        self._models = models_of(decision)
        self._asks_for_body = False
        self._names: Renamer | None = None

    def read_headers(self, message: ProcessingRequest, mode: Mode, *, may_ask: bool) -> Mode:
        """Take the response's headers, and return the mode of the body from now on.

        Where the proxy keeps the body to itself and ``may_ask``, the answer asks for it.
        """
        headers = message.response_headers
        if SERVED in self._headers:
            served = messages.served_in(message.metadata_context)
            kept = {name: value for name, value in self._headers.items() if name != SERVED}
            self._headers = kept if served is None else {**kept, SERVED: served}
        if headers.end_of_stream or (self._models is None and not self.reports):
            return mode
        seen = messages.header_values(headers, WATCHED)
        readable = seen.get(CONTENT_ENCODING, "identity") == "identity"
        if self._models is not None:
            self.compressed = not readable
            if readable and (mode != NONE or may_ask):
                self._names = renamer(seen.get(CONTENT_TYPE, ""), *self._models)
        self._asks_for_body = mode == NONE and may_ask and (self._names is not None or (self.reports and readable))
        return FULL_DUPLEX if self._asks_for_body else mode

    def header_answer(self) -> bytes:
        """Return the answer to the response's headers."""
        return messages.response_headers(
            self._headers,
            unknown_length=self._names is not None,
            asks_for=messages.WHOLE_RESPONSE if self._asks_for_body else None,
        )

    def body_answers(self, piece: bytes, mode: Mode, *, ends: bool) -> list[bytes]:
        """Return the answers to a piece of the body."""
        names = self._names
        if names is not None:
            piece = names.feed(piece) + (names.end() if ends else b"")
            if mode != FULL_DUPLEX:
                return [messages.replaced_body(piece)]
            if not piece and not ends:  # all of it was kept back
                return []
        elif mode != FULL_DUPLEX:
            return [messages.CONTINUE_RESPONSE_BODY]
        return messages.chunks("response_body", piece, end_of_stream=ends)

    def trailer_answers(self, mode: Mode) -> list[bytes]:
        """Return the answers to the trailers, after what was kept back of the body.

        Only a body that breaks off inside a name leaves something, and only full duplex can still send it.
        """
        kept = self._names.end() if self._names is not None else b""
        if kept and mode == FULL_DUPLEX:
            return [*messages.chunks("response_body", kept, end_of_stream=False), messages.CONTINUE_RESPONSE_TRAILERS]
        return [messages.CONTINUE_RESPONSE_TRAILERS]


def models_of(decision: Decision) -> tuple[str, str] | None:
    """Return the model names that the engine was sent and that the client sent, where both are known and differ."""
    request = decision.request
    if decision.body is None or request is None or not request.model or request.model == request.target_model:
        return None
    return request.target_model, request.model


def changes_to(decision: Decision, *, reports: bool) -> ResponseChanges | None:
    """Return the changes to the response to ``decision``; None if there are none, and nothing is reported of it."""
    reports = reports and decision.request is not None
    if models_of(decision) is None and not decision.response_headers and not reports:
        return None
    return ResponseChanges(decision, reports=reports)
