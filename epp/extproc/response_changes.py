"""What the picker changes in the response to one pick: headers, and the model's name. Made only where it does."""

from __future__ import annotations

from typing import TypeAlias

from epp.decision import Decision
from epp.extproc import messages
from epp.extproc.model_renaming import Renamer, renamer
from epp.extproc.observer import CONTENT_ENCODING, CONTENT_TYPE, WATCHED
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode
from scorers.labels.header_testing import SERVED

Mode: TypeAlias = ProcessingMode.BodySendMode
FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
NONE = ProcessingMode.NONE


class Reply:
    """Owner: its exchange."""

    def __init__(self, decision: Decision, *, reports: bool) -> None:
        self.reports = reports
        """Whether the proxy is told something when the response has ended."""
        self.headers = decision.response_headers
        self.models = models_of(decision)
        self.compressed = False
        """Whether the model's name could not be put back for that."""
        self._names: Renamer | None = None

    def answer_headers(self, message: ProcessingRequest, mode: Mode, *, may_ask: bool) -> tuple[bytes, Mode]:
        """The answer to response headers, and the mode of the body from now on; where the proxy keeps the body to
        itself and ``may_ask``, it is asked for."""
        headers = message.response_headers
        if SERVED in self.headers:
            served = messages.served_in(message.metadata_context)
            kept = {name: value for name, value in self.headers.items() if name != SERVED}
            self.headers = kept if served is None else {**kept, SERVED: served}
        readable = False
        if not headers.end_of_stream and (self.models is not None or self.reports):
            seen = messages.header_values(headers, WATCHED)
            readable = seen.get(CONTENT_ENCODING, "identity") == "identity"
            if self.models is not None:
                self.compressed = not readable
                if readable and (mode != NONE or may_ask):
                    self._names = renamer(seen.get(CONTENT_TYPE, ""), *self.models)
        renames = self._names is not None
        if mode == NONE and may_ask and (renames or (self.reports and readable)):
            whole = messages.WHOLE_RESPONSE
            return messages.response_headers(self.headers, unknown_length=renames, asks_for=whole), FULL_DUPLEX
        return messages.response_headers(self.headers, unknown_length=renames), mode

    def answer_body(self, piece: bytes, mode: Mode, *, ends: bool) -> list[bytes]:
        """The answers to a piece of the body."""
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

    def answer_trailers(self, mode: Mode) -> list[bytes]:
        """The answers to response trailers: what was kept back has to go first. (Only a body that breaks off inside a
        name leaves something, and only full duplex can still send it.)"""
        kept = self._names.end() if self._names is not None else b""
        if kept and mode == FULL_DUPLEX:
            return [*messages.chunks("response_body", kept, end_of_stream=False), messages.CONTINUE_RESPONSE_TRAILERS]
        return [messages.CONTINUE_RESPONSE_TRAILERS]


def models_of(decision: Decision) -> tuple[str, str] | None:
    """The model that the engine is asked for and the one that the client named, where both are known and differ."""
    request = decision.request
    if decision.body is None or request is None or not request.model or request.model == request.target_model:
        return None
    return request.target_model, request.model


def reply_to(decision: Decision, *, reports: bool) -> Reply | None:
    """What is to be changed in the response to ``decision``, if anything, or told of it."""
    reports = reports and decision.request is not None
    if models_of(decision) is None and not decision.response_headers and not reports:
        return None
    return Reply(decision, reports=reports)
