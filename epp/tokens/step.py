"""The step between reading a request and admitting it: its prompts become token ids, or it goes on without them.

    read ─► tokens ─► admit ─► place
               └─► waits, at most ``timeout_s`` ─► admit ─► …

Both waits look like one to the exchange: a request that waits here may then wait for its admission, and its exchange is
resumed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from epp.errors import EppError, WaitedTooLong
from epp.flowcontrol.admission import MOST_PATIENCE_S, Admission, Arrival, Resume, Wait
from epp.parsers.identity import TOKENS, as_tokens, kind_of
from epp.tokens.counts import GONE, SENT, TOKENIZED, TokenCounts
from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.source import Job, TokenRequest, TokenSource
from scorers.base import Prompt, Request

LATE_S = 1.0
"""How late an answer may be, beyond ``timeout_s``. A guess."""


class TokenLimits(msgspec.Struct, frozen=True):
    """Limits for requests that wait for token ids."""

    timeout_s: float = 5.0
    max_waiting: int = 1000


class TokenStep:
    """Tokenizes prompts, then admits the request. Owner: the event loop.

    One object serves all requests, even when the source or the admission behind it changes.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.counts = TokenCounts()
        self.limits = TokenLimits()
        self.source: TokenSource | None = None
        """None: only prompts that clients send as token ids are known."""
        self.admission: Admission | None = None
        self._clock = clock

    def admit(self, arrival: Arrival, body: bytes, resume: Resume) -> Wait | None:
        """Tokenize the request, then admit it as ``Admission.admit`` does.

        ``body`` is the client's, and kept only while a source needs it. Raises: EppError if the request is refused.
        """
        request = arrival.request
        if not request.prompts:
            return self.onward(arrival, resume)
        known = self._without_source(request)
        if known is not None:
            self.counts.results[SENT if isinstance(known, tuple) else known] += 1
            if isinstance(known, tuple):
                written(request, known)
            return self.onward(arrival, resume)
        source = self.source
        assert source is not None  # noqa: S101 - or something would be known
        began = self._clock()
        wanted = _request_for_source(arrival, body)
        answer = source.now(wanted)
        if answer is None and self.counts.waiting >= self.limits.max_waiting:
            answer = NoTokenIds.BUSY
        if answer is None:
            return TokenWait(self, source, wanted, arrival, resume, began)
        self.take(request, answer, began)
        return self.onward(arrival, resume)

    async def tokenize(self, arrival: Arrival, body: bytes) -> Answer | None:
        """Tokenize for ``tierwise explain``: like ``admit``, but nothing is counted; None if there is no prompt."""
        request, source = arrival.request, self.source
        if not request.prompts:
            return None
        known = self._without_source(request)
        if known is not None or source is None:
            return known
        wanted = _request_for_source(arrival, body)
        answer = source.now(wanted)
        if answer is not None:
            return answer
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        job = source.later(wanted, answered.set_result)
        try:
            async with asyncio.timeout(self.limits.timeout_s):  # not wait_for, which can lose a cancellation
                return await answered
        except TimeoutError:
            return NoTokenIds.TIMEOUT
        finally:
            job.cancel()

    def _without_source(self, request: Request) -> Answer | None:
        """Return the answer if no source is needed; None for all other requests.

        No source is needed for prompts that are token ids already, or that cannot have any.
        """
        kinds = {kind_of(prompt.identity) for prompt in request.prompts}
        if kinds == {TOKENS}:
            return tuple([prompt.data for prompt in request.prompts])
        if self.source is None:
            return NoTokenIds.NO_MODEL
        return NoTokenIds.MEDIA if any(kind.startswith(TOKENS) for kind in kinds) else None

    def take(self, request: Request, answer: Answer, began: float) -> None:
        """Write the answer into ``request``, and count it."""
        self.counts.seconds.observe(self._clock() - began)
        self.counts.results[answer if isinstance(answer, NoTokenIds) else TOKENIZED] += 1
        written(request, answer)

    def onward(self, arrival: Arrival, resume: Resume) -> Wait | None:
        """Pass the request to the admission in use. Raises: EppError."""
        return None if self.admission is None else self.admission.admit(arrival, resume)


def _request_for_source(arrival: Arrival, body: bytes) -> TokenRequest:
    sent = body if arrival.body is None else arrival.body
    return TokenRequest(arrival.head.path, sent, arrival.request.target_model, len(arrival.request.prompts))


def written(request: Request, answer: Answer) -> str:
    """Write ``answer`` into ``request``; return its name in the metrics."""
    if isinstance(answer, NoTokenIds):
        return answer.value
    if kind_of(request.prompts[0].identity) == TOKENS:
        request.tokens = request.prompts
        return SENT
    further = request.prompt_tokens - sum([-(-len(prompt.data) // 4) for prompt in request.prompts])
    request.prompt_tokens = max(1, sum(map(len, answer)) // 4 + max(0, further))
    request.tokens = tuple(
        [Prompt(as_tokens(prompt.identity), ids) for prompt, ids in zip(request.prompts, answer, strict=True)]
    )
    return TOKENIZED


class TokenWait:
    """A request that waits for its tokens, then perhaps for its admission.

    Invariant: ``resume`` is called once, or never after ``cancel``.
    """

    __slots__ = ("_arrival", "_began", "_behind", "_job", "_resume", "_step", "_timer", "_until_s")

    def __init__(
        self, step: TokenStep, source: TokenSource, wanted: TokenRequest, arrival: Arrival, resume: Resume, began: float
    ) -> None:
        self._step = step
        self._arrival = arrival
        self._resume: Resume | None = resume
        self._began = began
        self._behind: Wait | None = None
        self._until_s: float | None = None
        """The loop time at which the waiting proxy gives up."""
        step.counts.waiting += 1
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            step.limits.timeout_s, self._late
        )
        self._job: Job | None = source.later(wanted, self._answered)

    def patience_s(self) -> float:
        """Return how long the proxy must wait at most, for both waits together."""
        admission = self._step.admission
        behind_s = 0.0 if admission is None else admission.patience_s()
        mine_s = self._step.limits.timeout_s + LATE_S
        asked_s = min(MOST_PATIENCE_S, mine_s + behind_s)
        self._until_s = asyncio.get_running_loop().time() + asked_s
        return asked_s

    def cancel(self) -> None:
        """Stop waiting: the client is gone."""
        if self._resume is None:
            return
        self._resume = None
        self._stop()
        if self._job is not None:
            self._job.cancel()
            self._leave()
            self._step.counts.results[GONE] += 1
        if self._behind is not None:
            self._behind.cancel()
            self._behind = None

    def _late(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._answered(NoTokenIds.TIMEOUT)

    def _answered(self, answer: Answer) -> None:
        """Handle the answer of the source, or a reason why there is none."""
        self._leave()
        self._stop()
        self._step.take(self._arrival.request, answer, self._began)
        try:
            self._behind = self._step.onward(self._arrival, self._go)
        except EppError as error:
            self._go(error)
            return
        if self._behind is None:
            self._go(None)
        elif self._until_s is not None:
            loop = asyncio.get_running_loop()
            if loop.time() + self._behind.patience_s() > self._until_s:
                # The proxy was asked to wait for less before the settings changed, and cannot be asked again.
                self._timer = loop.call_at(self._until_s - LATE_S, self._too_late)

    def _too_late(self) -> None:
        if self._behind is not None:
            self._behind.cancel()
        self._go(WaitedTooLong("the request has waited for as long as its proxy was asked to wait"))

    def _go(self, error: EppError | None) -> None:
        self._stop()
        self._behind = None
        resume, self._resume = self._resume, None
        if resume is not None:
            resume(error)

    def _leave(self) -> None:
        self._job = None
        self._step.counts.waiting -= 1

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
