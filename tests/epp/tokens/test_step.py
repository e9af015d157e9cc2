"""Requests that wait for their token ids, before they are admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from epp.errors import Saturated
from epp.parsers.identity import TOKENS, identity
from epp.picking.profile import Profile
from epp.tokens.counts import GONE, SENT, TOKENIZED
from epp.tokens.model.answer import NoTokenIds
from epp.tokens.step import TokenLimits, TokenStep
from scorers.base import NoParameters, Prompt, Request, Scorer
from scorers.pickers import MaxScorePicker
from tests.epp.doubles import (
    BUFFERED,
    NONE,
    Gate,
    World,
    completion,
    kinds,
    read,
    request_body,
    request_headers,
)
from tests.epp.extproc.test_exchange_waiting import Stream
from tests.epp.flowcontrol.doubles import arrival
from tests.epp.tokens.doubles import SlowSource

IDS = b"\x01\0\0\0\x02\0\0\0"
PROMPT = Prompt(identity(TOKENS, "m", None), IDS)


class Seen(Scorer[NoParameters]):
    """A plugin that scores all alike and keeps the requests."""

    type_name = "seen"

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def score(self, request: Request, candidates: object) -> list[float]:
        self.requests.append(request)
        return [0.0] * len(candidates)  # type: ignore[arg-type]


class Scene:
    def __init__(self, source: SlowSource | None, gate: Gate | None = None, limits: TokenLimits | None = None) -> None:
        self.step = TokenStep(asyncio.get_running_loop().time)
        self.step.source = source
        self.step.limits = limits or TokenLimits()
        self.seen = Seen()
        profile = Profile([], [], [(self.seen, 1.0)], MaxScorePicker())
        self.world = World(profile=profile, admission=gate, tokens=self.step)

    def ask(self, body: bytes = completion(), *, buffered: bool = False, path: str = "/v1/completions") -> Stream:
        stream = Stream(self.world)
        headers = request_headers(**{":path": path}, **({"modes": (BUFFERED, NONE)} if buffered else {}))  # type: ignore[arg-type]
        stream.send(headers, request_body(body))
        return stream

    @property
    def results(self) -> dict[object, int]:
        return dict(self.step.counts.results)

    @property
    def tokens(self) -> list[tuple[Prompt, ...] | None]:
        """The token ids of the requests that were scored."""
        return [request.tokens for request in self.seen.requests]


def on_a_loop(scene: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(scene())


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_token_ids_that_a_client_sends_need_no_source(prompt: list[int]) -> None:
    async def run() -> None:
        scene = Scene(None)
        stream = scene.ask(completion(prompt=prompt))  # type: ignore[arg-type]
        assert len(kinds(stream.answers)) == 2
        assert (scene.tokens, scene.results) == ([(PROMPT,)], {SENT: 1})

    on_a_loop(run)


def test_tokens_that_need_no_time_are_there_in_the_same_call() -> None:
    async def run() -> None:
        source = SlowSource(at_once=(IDS,))
        scene = Scene(source)
        scene.ask()
        assert (scene.tokens, scene.results) == ([(PROMPT,)], {TOKENIZED: 1})
        assert scene.seen.requests[0].prompt_tokens == 2
        assert source.jobs == []

    on_a_loop(run)


def test_a_request_waits_for_its_tokens_and_others_go_on_meanwhile() -> None:
    async def run() -> None:
        source = SlowSource()
        scene = Scene(source)
        slow = scene.ask()
        assert (slow.answers, scene.step.counts.waiting) == ([], 1)
        other = scene.ask(completion(prompt=[1, 2]))  # type: ignore[arg-type]
        assert len(other.answers) == 2
        assert source.jobs[0].request.body == completion()
        source.finish((IDS,))
        assert len(slow.answers) == 2
        assert (scene.tokens, scene.step.counts.waiting) == ([(PROMPT,), (PROMPT,)], 0)

    on_a_loop(run)


@pytest.mark.parametrize("why", list(NoTokenIds))
def test_a_request_without_token_ids_goes_on(why: NoTokenIds) -> None:
    async def run() -> None:
        source = SlowSource()
        scene = Scene(source)
        stream = scene.ask()
        source.finish(why)
        assert len(stream.answers) == 2
        assert (scene.tokens, scene.results) == ([None], {why: 1})

    on_a_loop(run)


def test_a_request_waits_no_longer_than_it_may() -> None:
    async def run() -> None:
        source = SlowSource()
        scene = Scene(source, limits=TokenLimits(timeout_s=0.001))
        stream = scene.ask()
        while not stream.answers:  # noqa: ASYNC110 - the loop's timer tells nobody else
            await asyncio.sleep(0)
        assert (scene.tokens, scene.results) == ([None], {NoTokenIds.TIMEOUT: 1})
        assert (source.jobs, source.cancelled) == ([], 1)

    on_a_loop(run)


def test_of_too_many_the_last_go_on_at_once() -> None:
    async def run() -> None:
        source = SlowSource()
        scene = Scene(source, limits=TokenLimits(max_waiting=2))
        streams = [scene.ask() for _ in range(3)]
        assert [len(stream.answers) for stream in streams] == [0, 0, 2]
        assert scene.results == {NoTokenIds.BUSY: 1}
        source.finish((IDS,))
        assert scene.ask().answers == []

    on_a_loop(run)


def test_a_client_that_goes_is_forgotten_at_once() -> None:
    async def run() -> None:
        source, gate = SlowSource(), Gate()
        scene = Scene(source, gate)
        stream = scene.ask()
        stream.exchange.closed(1.0)
        assert (source.jobs, source.cancelled, scene.step.counts.waiting) == ([], 1, 0)
        assert (scene.results, gate.waiting) == ({GONE: 1}, [])
        assert scene.world.telemetry.refusals == ["ServiceUnavailable"]

    on_a_loop(run)


def test_tokens_come_before_the_admission_which_may_let_the_request_wait_again() -> None:
    async def run() -> None:
        source, gate = SlowSource(), Gate()
        scene = Scene(source, gate)
        stream = scene.ask()
        assert gate.waiting == []
        source.finish((IDS,))
        assert (len(gate.waiting), stream.answers) == (1, [])
        gate.settle()
        assert (len(stream.answers), stream.resumed, scene.tokens) == (2, 1, [(PROMPT,)])

    on_a_loop(run)


def test_a_client_that_goes_in_the_second_wait_is_forgotten_there() -> None:
    async def run() -> None:
        source, gate = SlowSource(), Gate()
        scene = Scene(source, gate)
        stream = scene.ask()
        source.finish((IDS,))
        stream.exchange.closed(1.0)
        assert (gate.waiting, gate.cancelled, scene.results) == ([], 1, {TOKENIZED: 1})

    on_a_loop(run)


def test_a_request_refused_after_its_tokens_is_resumed_and_counted_once() -> None:
    class Closed(Gate):
        def admit(self, arrival: object, resume: object) -> None:
            raise Saturated("full")

    async def run() -> None:
        source = SlowSource()
        scene = Scene(source, Closed())
        stream = scene.ask()
        source.finish((IDS,))
        (answer,) = read(stream.answers)
        assert answer.immediate_response.status.code == 429
        assert scene.world.telemetry.refusals == ["ResourceExhausted"]

    on_a_loop(run)


def test_a_refusal_without_a_wait_is_raised_and_counted_once() -> None:
    class Closed(Gate):
        def admit(self, arrival: object, resume: object) -> None:
            raise Saturated("full")

    async def run() -> None:
        scene = Scene(SlowSource(at_once=(IDS,)), Closed())
        stream = scene.ask()
        assert read(stream.answers)[0].immediate_response.status.code == 429
        assert scene.world.telemetry.refusals == ["ResourceExhausted"]

    on_a_loop(run)


def test_a_proxy_is_asked_once_for_both_waits() -> None:
    async def run() -> None:
        source, gate = SlowSource(), Gate()
        scene = Scene(source, gate, TokenLimits(timeout_s=4.0))
        stream = scene.ask(buffered=True)
        patience = read(stream.answers)[-1].override_message_timeout.ToMilliseconds()
        assert patience == 4_000 + 1_000 + 61_000
        source.finish((IDS,))
        assert len(stream.answers) == 2
        gate.settle()
        assert kinds(stream.answers) == ["request_headers", None, "request_body"]

    on_a_loop(run)


def test_settings_that_change_meanwhile_do_not_outlast_a_proxy() -> None:
    class Patient(Gate):
        def patience_s(self) -> float:
            return 0.0  # when the proxy was asked

    async def run() -> None:
        source, gate = SlowSource(), Patient()
        scene = Scene(source, gate, TokenLimits(timeout_s=0.0))
        stream = scene.ask(buffered=True)
        source.finish((IDS,))
        while not scene.world.telemetry.refusals:  # noqa: ASYNC110 - the loop's timer tells nobody else
            await asyncio.sleep(0)
        assert (gate.waiting, gate.cancelled) == ([], 1)
        answer = read(stream.answers)[-1].immediate_response
        assert answer.status.code == 429
        assert b"its proxy was asked to wait" in answer.body

    on_a_loop(run)


def test_a_request_that_computes_nothing_is_not_tokenized() -> None:
    async def run() -> None:
        source = SlowSource()
        scene = Scene(source)
        stream = scene.ask(b'{"model": "m", "prompt": "x"}', path="/v1/completions/render")
        assert (len(stream.answers), source.jobs, scene.results) == (2, [], {})

    on_a_loop(run)


def test_without_the_step_nothing_is_looked_at() -> None:
    world = World()
    stream = Stream(world)
    stream.send(request_headers(), request_body(completion()))
    assert len(stream.answers) == 2


def test_a_cancellation_in_the_moment_that_the_tokens_come_is_not_lost() -> None:
    async def run() -> None:
        source = SlowSource()
        step = Scene(source).step
        waiting = arrival()
        waiting.request.prompts = (Prompt(identity(b"text", "m", None), b"hello"),)
        task = asyncio.create_task(step.tokenize(waiting, b"{}"))
        while not source.jobs:  # noqa: ASYNC110 - the task has not begun
            await asyncio.sleep(0)
        source.finish((IDS,))
        assert task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    on_a_loop(run)
