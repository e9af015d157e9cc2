"""Tokenizers in this process. Short or mostly cached requests are tokenized at once, the others in a thread.

The library encodes without holding Python's lock, so that a thread takes little time from the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.model.chat import Unrendered
from epp.tokens.model.model import ModelTokenizer, Partly, Text
from epp.tokens.source import Done, TokenRequest

log = logging.getLogger(__name__)

AT_ONCE_BYTES = 16_384
"""Bodies up to this size are parsed, rendered and looked up at once, in 0.2 ms. Source:
benchmarks/picker/tokenizing.py, two shared x86-64 cores, 2026-11: 0.16 ms for 12 KB; the way to a thread and back
takes 0.06 ms.
"""
AT_ONCE_OBJECTS, AT_ONCE_PROMPTS = 64, 16
"""Limits for such a body. Objects are estimated by its braces: each message, part and tool takes 5 µs, each prompt 1
µs.
"""
AT_ONCE_CHARACTERS = 1_024
"""How much text is encoded at once, which also takes 0.2 ms. Source: the same benchmark: 0.2 ms for 1 KB."""


class LocalJob:
    """A request that a thread tokenizes. Owner: the event loop."""

    def __init__(self, jobs: set[LocalJob], done: Done) -> None:
        self._jobs = jobs
        self._done: Done | None = done
        jobs.add(self)

    def cancel(self) -> None:
        """Drop the callback. What a thread has begun still ends, but without effect."""
        self._done = None
        self._jobs.discard(self)

    @property
    def wanted(self) -> bool:
        """Whether a caller still waits for the result."""
        return self._done is not None

    def finish(self, answer: Answer) -> None:
        """Pass ``answer`` to the callback, at most once."""
        done = self._done
        self.cancel()
        if done is not None:
            done(answer)


class LocalSource:
    """A ``TokenSource`` that tokenizes in this process. Owner: the event loop."""

    def __init__(
        self,
        models: Mapping[str, ModelTokenizer],
        *,
        threads: int = 2,
        max_bytes: int = 16 << 20,
        at_once_bytes: int = AT_ONCE_BYTES,
        at_once_characters: int = AT_ONCE_CHARACTERS,
    ) -> None:
        """Start the threads. ``models`` maps names to tokenizers.

        The tokenizer named "" serves all models that have none of their own. Bodies over ``max_bytes`` are not read.
        """
        self.models = models
        self._max_bytes = max_bytes
        self._at_once_bytes = at_once_bytes
        self._at_once_characters = at_once_characters
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenize")
        self._jobs: set[LocalJob] = set()
        self._begun: tuple[TokenRequest, list[Text], Partly] | None = None

    def now(self, request: TokenRequest) -> Answer | None:
        """Return the answer for a short or mostly cached request; None for the rest."""
        model = self._model(request)
        if model is None:
            return NoTokenIds.NO_MODEL
        if len(request.body) > self._max_bytes:
            return NoTokenIds.TOO_LONG
        if len(request.body) > self._at_once_bytes or request.prompts > AT_ONCE_PROMPTS:
            return None
        if request.body.count(b"{") > AT_ONCE_OBJECTS:
            return None
        return answer_or_reason(lambda: self._at_once(model, request))

    def later(self, request: TokenRequest, done: Done) -> LocalJob:
        """Tokenize the request in a thread."""
        begun, self._begun = self._begun, None
        model = self._model(request)
        job = LocalJob(self._jobs, done)
        loop = asyncio.get_running_loop()

        def work() -> Answer | None:
            if not job.wanted or model is None:
                return None
            if begun is not None and begun[0] is request:
                _, texts, partly = begun
            else:
                texts = model.texts(request.path, request.body, request.prompts)
                partly = model.look_up(texts)
            return checked(request, model.put_together(texts, partly, model.encode(partly)))

        def over(answer: Answer | None) -> None:
            if answer is not None:
                job.finish(answer)

        def run() -> None:
            answer = answer_or_reason(work)
            if job.wanted:
                loop.call_soon_threadsafe(over, answer)

        self._threads.submit(run)
        return job

    async def close(self) -> None:
        """Finish all waiting jobs with ``CLOSED``, and let the threads end."""
        for job in list(self._jobs):
            job.finish(NoTokenIds.CLOSED)
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    def _model(self, request: TokenRequest) -> ModelTokenizer | None:
        return self.models.get(request.model) or self.models.get("")

    def _at_once(self, model: ModelTokenizer, request: TokenRequest) -> Answer | None:
        texts = model.texts(request.path, request.body, request.prompts)
        partly = model.look_up(texts)
        if partly.missing_characters > self._at_once_characters:
            self._begun = request, texts, partly
            return None
        return checked(request, model.put_together(texts, partly, model.encode(partly)))


def checked(request: TokenRequest, answer: Answer) -> Answer:
    """Return ``answer`` if it has as many prompts as the request, else ``UNSUPPORTED``."""
    return answer if isinstance(answer, NoTokenIds) or len(answer) == request.prompts else NoTokenIds.UNSUPPORTED


def answer_or_reason(work: Callable[[], Answer | None]) -> Answer | None:
    """Return the result of ``work``; errors become a reason, and unexpected ones are logged."""
    try:
        return work()
    except Unrendered as error:
        return error.why
    except Exception:
        log.exception("a request could not be tokenized, and goes on without")
        return NoTokenIds.FAILED
