"""Read ``usage`` from a response as it passes by, in pieces of any size.

Usage is in a JSON object under ``usage`` (SGLang: ``meta_info``), or in some of the server-sent events: the last chunk,
``response.completed``, ``message_start`` and ``message_delta``. A later event replaces an earlier one, field by field.
In whole responses, kvengine's report of the cached tokens by tier stands beside it. Memory is bounded; bytes that
cannot be read are skipped.

Source: the API references of OpenAI and Anthropic; responses of vLLM and SGLang.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import structs

from epp.decision import Usage
from scorers.base import Tier

LINE_BYTES = 256 * 1024
"""The longest event line that is read; ``response.completed`` repeats the whole answer. A guess."""

DOCUMENT_BYTES = 4 * 1024 * 1024
"""The largest JSON response that is read; embeddings of many inputs are large. A guess."""


NOTHING = msgspec.Raw()


class Details(msgspec.Struct):
    """The details of a token count in OpenAI's APIs."""

    cached_tokens: int | None = None


class Reported(msgspec.Struct):
    """The ``usage`` object, with the field names of every API."""

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
        """Return the counts under one name each; a missing count is 0, a missing count of cached tokens None."""
        details = self.prompt_tokens_details or self.input_tokens_details or Details()
        # Anthropic counts tokens read from a cache and tokens written to one apart from the other input tokens.
        read, written = self.cache_read_input_tokens, self.cache_creation_input_tokens
        counts = (count for count in (details.cached_tokens, self.cached_tokens, read) if count is not None)
        return Usage(
            prompt_tokens=(self.prompt_tokens or self.input_tokens or 0) + (read or 0) + (written or 0),
            completion_tokens=self.completion_tokens or self.output_tokens or 0,
            cached_tokens=next(counts, None),
        )

    def after(self, earlier: Reported | None) -> Reported:
        """Return this object, with missing fields filled in from the ``earlier`` one."""
        if earlier is not None:
            for field in self.__struct_fields__:
                if getattr(self, field) is None:
                    setattr(self, field, getattr(earlier, field))
        return self


class Inner(msgspec.Struct):
    """The ``response`` of a ``response.completed`` event, the ``message`` of a ``message_start``."""

    usage: Reported | None = None


class Report(msgspec.Struct):
    """kvengine's report in ``kv_transfer_params``, about one prompt."""

    prompt_tokens: int
    cached_tokens_by_tier: dict[str, int]


class Answer(msgspec.Struct):
    """A whole response, or one event of a stream, as far as it reports usage."""

    usage: Reported | None = None
    response: Inner | None = None
    message: Inner | None = None
    meta_info: Reported | None = None
    kv_transfer_params: msgspec.Raw = NOTHING
    """Other connectors use the field, too, so it is decoded only when it is needed."""


ANSWER = msgspec.json.Decoder(Answer)
REPORT = msgspec.json.Decoder(Report)
TIERS = {tier.value: tier for tier in Tier}


class UsageReader(Protocol):
    """Reads usage from a response body, which it is given in order."""

    @property
    def usage(self) -> Usage | None:
        """Return the counts read so far; None before the first."""

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes. Never raises."""

    def end(self) -> None:
        """Note that no more bytes follow."""


class EventUsage:
    """Reads server-sent events. Keeps at most one unfinished line, and nothing of one that is too long."""

    def __init__(self) -> None:
        self._reported: Reported | None = None
        self._rest = bytearray()
        self._skipping = False

    @property
    def usage(self) -> Usage | None:
        """Return the counts read so far; None before the first."""
        return self._reported.usage() if self._reported else None

    def feed(self, chunk: bytes) -> None:
        """Read the lines that end in ``chunk``."""
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))  # either ends a line, or both together
        if last < 0:
            self._keep(chunk)
            return
        if self._skipping:
            lines, self._skipping = chunk[:last].partition(b"\r" if b"\n" not in chunk else b"\n")[2], False
        else:
            lines = bytes(self._rest) + chunk[:last] if self._rest else chunk[:last]
        self._rest.clear()
        # Few of a stream's many events contain usage; the others are never split into lines.
        if has_usage_key(lines):
            for line in lines.splitlines():
                self._read(line)
        self._keep(chunk[last + 1 :])

    def end(self) -> None:
        """Read a last line that has no line end."""
        self._read(bytes(self._rest))
        self._rest.clear()

    def _keep(self, rest: bytes) -> None:
        if self._skipping or len(self._rest) + len(rest) > LINE_BYTES:
            self._skipping = True
            self._rest.clear()
        else:
            self._rest += rest

    def _read(self, line: bytes) -> None:
        if line.startswith(b"data:") and has_usage_key(line) and len(line) <= LINE_BYTES:
            reported = reported_in(answer_in(line[5:]))
            if reported is not None:
                self._reported = reported.after(self._reported)


class DocumentUsage:
    """Reads one JSON document. Keeps all of it, and nothing of one that is too large."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> None:
        """Keep ``chunk`` until the document ends."""
        self._held += len(chunk)
        if self._held > DOCUMENT_BYTES:
            self._pieces.clear()
        else:
            self._pieces.append(chunk)

    def end(self) -> None:
        """Read the document, which is complete."""
        if self._pieces:
            answer = answer_in(b"".join(self._pieces))
            reported = reported_in(answer)
            if answer is not None and reported is not None:
                self.usage = with_report(reported.usage(), answer.kv_transfer_params)
        self._pieces.clear()


def has_usage_key(line: bytes) -> bool:
    """Return whether ``line`` contains one of the keys at all."""
    return b'"usage"' in line or b'"meta_info"' in line


def answer_in(document: bytes) -> Answer | None:
    """Return ``document`` decoded; None unless it is a JSON object of that shape."""
    try:
        return ANSWER.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def reported_in(answer: Answer | None) -> Reported | None:
    """Return the usage that ``answer`` reports; None if it reports none."""
    if answer is None:
        return None
    inner = answer.response or answer.message
    return answer.usage or (inner and inner.usage) or answer.meta_info


def with_report(usage: Usage, report: msgspec.Raw) -> Usage:
    """Return ``usage`` with the tiers that kvengine reports.

    A report about another number of prompt tokens is ignored: it is about one prompt, and a response may be to several.
    """
    if not report:
        return usage
    try:
        parsed = REPORT.decode(report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return usage
    by_tier = {TIERS[name]: tokens for name, tokens in parsed.cached_tokens_by_tier.items() if name in TIERS}
    total = sum(by_tier.values())
    tokens = usage.prompt_tokens
    if parsed.prompt_tokens != tokens or min(by_tier.values(), default=-1) < 0 or total > tokens:
        return usage
    cached = total if usage.cached_tokens is None else usage.cached_tokens
    return structs.replace(usage, cached_tokens=cached, cached_by_tier=by_tier)
