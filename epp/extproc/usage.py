"""Read ``usage`` from a response as it passes by, in pieces of any size.

Source: the API references of OpenAI and Anthropic, vLLM's and SGLang's answers: a JSON object with ``usage`` (SGLang:
``meta_info``), or server-sent events, of which some carry it: the last chunk, ``response.completed``, ``message_start``
and ``message_delta``. What a later event says replaces what an earlier one said, field by field. In whole answers,
kvengine's report of the cached tokens by tier stands beside it. Memory is bounded; bytes that make no sense are
skipped.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import structs

from epp.decision import Usage
from scorers.base import Tier

LINE_BYTES = 256 * 1024
"""The longest event line that is looked at; ``response.completed`` repeats the whole answer. Guess."""

DOCUMENT_BYTES = 4 * 1024 * 1024
"""The largest JSON answer that is looked at; embeddings of many inputs are large. Guess."""


NOTHING = msgspec.Raw()


class Details(msgspec.Struct):
    """Tokens of a kind."""

    cached_tokens: int | None = None


class Reported(msgspec.Struct):
    """``usage`` under each API's names."""

    prompt_tokens: int | None = None
    input_tokens: int | None = None
    completion_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    input_tokens_details: Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cached_tokens: int | None = None

    def usage(self) -> Usage:
        """The same, under one name each; what was not said is 0, or None for what was cached."""
        details = self.prompt_tokens_details or self.input_tokens_details or Details()
        # Anthropic counts apart what was read from a cache and what was written to one.
        read, written = self.cache_read_input_tokens, self.cache_creation_input_tokens
        cached = (said for said in (details.cached_tokens, self.cached_tokens, read) if said is not None)
        return Usage(
            prompt_tokens=(self.prompt_tokens or self.input_tokens or 0) + (read or 0) + (written or 0),
            completion_tokens=self.completion_tokens or self.output_tokens or 0,
            cached_tokens=next(cached, None),
        )

    def after(self, earlier: Reported | None) -> Reported:
        """This one, and what only the ``earlier`` one said."""
        if earlier is not None:
            for field in self.__struct_fields__:
                if getattr(self, field) is None:
                    setattr(self, field, getattr(earlier, field))
        return self


class Inner(msgspec.Struct):
    """The ``response`` of a ``response.completed`` event, the ``message`` of a ``message_start``."""

    usage: Reported | None = None


class Report(msgspec.Struct):
    """kvengine's ``kv_transfer_params``: of the one prompt that it is about."""

    prompt_tokens: int
    cached_tokens_by_tier: dict[str, int]


class Answer(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    usage: Reported | None = None
    response: Inner | None = None
    message: Inner | None = None
    meta_info: Reported | None = None
    kv_transfer_params: msgspec.Raw = NOTHING
    """Other connectors answer in it, too."""


ANSWER = msgspec.json.Decoder(Answer)
REPORT = msgspec.json.Decoder(Report)
TIERS = {tier.value: tier for tier in Tier}


class UsageReader(Protocol):
    """Is fed a response body in order."""

    @property
    def usage(self) -> Usage | None:
        """What was said so far."""

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes. Never raises."""

    def end(self) -> None:
        """No more bytes follow."""


class EventUsage:
    """Reads server-sent events. Keeps at most one unfinished line, and of a longer one nothing."""

    def __init__(self) -> None:
        self._reported: Reported | None = None
        self._rest = bytearray()
        self._skipping = False

    @property
    def usage(self) -> Usage | None:
        """What was said so far."""
        return self._reported.usage() if self._reported else None

    def feed(self, chunk: bytes) -> None:
        """Look at the lines that end in ``chunk``."""
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))  # either ends a line, or both together
        if last < 0:
            self._keep(chunk)
            return
        if self._skipping:
            lines, self._skipping = chunk[:last].partition(b"\r" if b"\n" not in chunk else b"\n")[2], False
        else:
            lines = bytes(self._rest) + chunk[:last] if self._rest else chunk[:last]
        self._rest.clear()
        # Of the many events of a stream, few or one name it: the others are never split into lines.
        if names_usage(lines):
            for line in lines.splitlines():
                self._read(line)
        self._keep(chunk[last + 1 :])

    def end(self) -> None:
        """Look at a last line that nobody ended."""
        self._read(bytes(self._rest))
        self._rest.clear()

    def _keep(self, rest: bytes) -> None:
        if self._skipping or len(self._rest) + len(rest) > LINE_BYTES:
            self._skipping = True
            self._rest.clear()
        else:
            self._rest += rest

    def _read(self, line: bytes) -> None:
        if line.startswith(b"data:") and names_usage(line) and len(line) <= LINE_BYTES:
            reported = reported_in(answer_in(line[5:]))
            if reported is not None:
                self._reported = reported.after(self._reported)


class DocumentUsage:
    """Reads one JSON document. Keeps all of it, and of one that is too large nothing."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> None:
        """Keep ``chunk``."""
        self._held += len(chunk)
        if self._held > DOCUMENT_BYTES:
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def end(self) -> None:
        """Read what was kept."""
        if self._pieces:
            answer = answer_in(b"".join(self._pieces))
            reported = reported_in(answer)
            if answer is not None and reported is not None:
                self.usage = with_report(reported.usage(), answer.kv_transfer_params)
        self._pieces.clear()


def names_usage(line: bytes) -> bool:
    """Whether the words are there at all."""
    return b'"usage"' in line or b'"meta_info"' in line


def answer_in(document: bytes) -> Answer | None:
    """One JSON object, if it is one."""
    try:
        return ANSWER.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def reported_in(answer: Answer | None) -> Reported | None:
    """The usage that ``answer`` reports, if it does."""
    if answer is None:
        return None
    inner = answer.response or answer.message
    return answer.usage or (inner and inner.usage) or answer.meta_info


def with_report(usage: Usage, report: msgspec.Raw) -> Usage:
    """``usage`` with the tiers that kvengine reports, if it does, and of the same tokens: it reports of one prompt, and
    an answer may be to several."""
    if not report:
        return usage
    try:
        said = REPORT.decode(report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return usage
    by_tier = {TIERS[name]: tokens for name, tokens in said.cached_tokens_by_tier.items() if name in TIERS}
    total = sum(by_tier.values())
    if said.prompt_tokens != usage.prompt_tokens or min(by_tier.values(), default=-1) < 0 or total > said.prompt_tokens:
        return usage
    cached = total if usage.cached_tokens is None else usage.cached_tokens
    return structs.replace(usage, cached_tokens=cached, cached_by_tier=by_tier)
