"""Tokenizers in this process. What is short, or mostly known, is done at once; the rest in a thread.

The library encodes without Python's lock, so that a thread takes little from the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from epp.tokens.model.chat import Unrendered
from epp.tokens.model.model import ModelTokenizer, Partly, Text
from epp.tokens.source import Answer, Asked, Done, Untold

log = logging.getLogger(__name__)

AT_ONCE_BYTES = 16_384
"""Bodies up to here are read, written down and looked up at once, in 0.2 ms. Source: benchmarks/picker/tokenizing.py,
two shared x86-64 cores, 2026-11: 0.16 ms for 12 KB; handing over to a thread and hearing of it takes 0.06 ms."""
AT_ONCE_OBJECTS, AT_ONCE_PROMPTS = 64, 16
"""Of such a body, as far as its braces tell: each message, part and tool takes 5 µs, each prompt 1 µs."""
AT_ONCE_CHARACTERS = 1_024
"""What is encoded at once, in as long. Source: the same: 0.2 ms for 1 KB."""


class LocalJob:
    """Tokens that a thread makes. Owner: the event loop."""

    def __init__(self, jobs: set[LocalJob], done: Done) -> None:
        self._jobs = jobs
        self._done: Done | None = done
        jobs.add(self)

    def cancel(self) -> None:
        """Nobody waits any more; what a thread has begun ends unheard."""
        self._done = None
        self._jobs.discard(self)

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits."""
        return self._done is not None

    def finish(self, answer: Answer) -> None:
        """Tell it, once."""
        done = self._done
        self.cancel()
        if done is not None:
            done(answer)


class LocalSource:
    """Owner: the event loop."""

    def __init__(
        self,
        models: Mapping[str, ModelTokenizer],
        *,
        threads: int = 2,
        max_bytes: int = 16 << 20,
        at_once_bytes: int = AT_ONCE_BYTES,
        at_once_characters: int = AT_ONCE_CHARACTERS,
    ) -> None:
        """``models`` by name; the one named "" is any other's. A longer body than ``max_bytes`` is not read."""
        self.models = models
        self._max_bytes = max_bytes
        self._at_once_bytes = at_once_bytes
        self._at_once_characters = at_once_characters
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenize")
        self._jobs: set[LocalJob] = set()
        self._begun: tuple[Asked, list[Text], Partly] | None = None

    def now(self, asked: Asked) -> Answer | None:
        """What is short, or short of what is known."""
        model = self._model(asked)
        if model is None:
            return Untold.NO_MODEL
        if len(asked.body) > self._max_bytes:
            return Untold.TOO_LONG
        if len(asked.body) > self._at_once_bytes or asked.prompts > AT_ONCE_PROMPTS:
            return None
        if asked.body.count(b"{") > AT_ONCE_OBJECTS:
            return None
        return told(lambda: self._at_once(model, asked))

    def later(self, asked: Asked, done: Done) -> LocalJob:
        """The rest, in a thread."""
        begun, self._begun = self._begun, None
        model = self._model(asked)
        job = LocalJob(self._jobs, done)
        loop = asyncio.get_running_loop()

        def work() -> Answer | None:
            if not job.wanted or model is None:
                return None
            if begun is not None and begun[0] is asked:
                _, texts, partly = begun
            else:
                texts = model.texts(asked.path, asked.body, asked.prompts)
                partly = model.look_up(texts)
            return checked(asked, model.put_together(texts, partly, model.encode(partly)))

        def over(answer: Answer | None) -> None:
            if answer is not None:
                job.finish(answer)

        def run() -> None:
            answer = told(work)
            if job.wanted:
                loop.call_soon_threadsafe(over, answer)

        self._threads.submit(run)
        return job

    async def close(self) -> None:
        """Let the threads end, and tell who waits."""
        for job in list(self._jobs):
            job.finish(Untold.CLOSED)
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    def _model(self, asked: Asked) -> ModelTokenizer | None:
        return self.models.get(asked.model) or self.models.get("")

    def _at_once(self, model: ModelTokenizer, asked: Asked) -> Answer | None:
        texts = model.texts(asked.path, asked.body, asked.prompts)
        partly = model.look_up(texts)
        if partly.missing_characters > self._at_once_characters:
            self._begun = asked, texts, partly
            return None
        return checked(asked, model.put_together(texts, partly, model.encode(partly)))


def checked(asked: Asked, answer: Answer) -> Answer:
    """``answer``, if it has as many parts as were asked for."""
    return answer if isinstance(answer, Untold) or len(answer) == asked.prompts else Untold.UNSUPPORTED


def told(work: Callable[[], Answer | None]) -> Answer | None:
    """What ``work`` says, whatever happens."""
    try:
        return work()
    except Unrendered as error:
        return error.why
    except Exception:
        log.exception("a request could not be tokenized, and goes on without")
        return Untold.FAILED
