"""Who may read the metrics: the API server decides, and is asked as rarely as it may be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from epp.kube import readers
from epp.kube.client import Client
from epp.kube.readers import AT_ONCE, MOST, WAITING, Readers, Verdict, bearer
from epp.kube.remembered import Remembered
from epp.ports.http_port import HttpPort
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.reviewing import Reviewing

PROMETHEUS = "system:serviceaccount:monitoring:prometheus"
SECRET = "a-readers-t0ken"


class Site:
    """An API server that reviews, and the picker's readers."""

    def __init__(self, url: str, answer_s: float) -> None:
        self.api = Reviewing()
        self.api.users = {SECRET: PROMETHEUS, "denied": "system:serviceaccount:other:curious"}
        self.api.readers = {PROMETHEUS}
        self.time = 1000.0
        self.client = Client(TokenAccess(url), answer_s=10.0)
        self.readers = Readers(self.client, lambda: self.time, answer_s=answer_s)

    async def get(self, token: str | None = SECRET) -> Verdict:
        header = None if token is None else f"Bearer {token}"
        return await self.readers.verdict("GET", "/metrics", header)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)


@asynccontextmanager
async def site(*, answer_s: float = 5.0, away: bool = False) -> AsyncIterator[Site]:
    port, app, here = HttpPort(), web.Application(), list[Site]()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await here[0].api.handle(request)

    app.router.add_route("*", "/{path:.*}", handle)
    url = f"http://127.0.0.1:{await port.open(app, '127.0.0.1', 0)}"
    here.append(Site("http://127.0.0.1:9" if away else url, answer_s))
    async with here[0].client:
        await here[0].readers.start()
        try:
            yield here[0]
        finally:
            await here[0].readers.stop()
            here[0].api.held.set()
            await port.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_reader_with_the_right_passes_and_is_remembered() -> None:
    async def work() -> None:
        async with site() as here:
            assert (await here.get()).status == 200
            assert (await here.get()).status == 200
            assert here.api.kinds() == ["tokenreviews", "subjectaccessreviews"]
            spec = here.api.asked[1][1]
            assert (spec["user"], spec["groups"], spec["extra"]) == (PROMETHEUS, ["g"], {"k": ["v"]})
            here.time += 61  # whose the token is lasts a minute, the right five
            assert (await here.get()).status == 200
            assert here.api.kinds()[2:] == ["tokenreviews", "subjectaccessreviews"]

    run(work())


def test_no_token_and_a_bad_one_are_401_and_no_right_is_403() -> None:
    async def work() -> None:
        async with site() as here:
            assert (await here.get(None)).status == 401
            assert here.api.asked == []
            assert (await here.get("forged")).status == 401
            assert (await here.get("forged")).status == 401
            assert here.api.kinds() == ["tokenreviews"]
            denied = await here.get("denied")
            assert denied.status == 403
            assert "curious may not get /metrics; it needs a ClusterRole with nonResourceURLs" in denied.sentence
            assert (await here.get("denied")).status == 403
            assert here.api.kinds() == ["tokenreviews", "tokenreviews", "subjectaccessreviews"]
            here.api.readers.add("system:serviceaccount:other:curious")
            here.time += 31
            assert (await here.get("denied")).status == 200
            counts = {reading.name: reading.samples for reading in here.readers.readings()}
            assert counts == {"tierwise_metrics_readers": [(("200",), 1), (("401",), 3), (("403",), 2)]}

    run(work())


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dTpw", SECRET, "Bearer a b", "Bearer a\x00b", "Bearer tökén"]
)
def test_a_header_without_a_bearer_token_is_no_review(header: str) -> None:
    assert bearer(header) is None


def test_the_scheme_has_no_case_and_blanks_around_the_token_are_left_out() -> None:
    assert bearer("bearer  abc ") == "abc"


def test_a_forbidden_review_is_500_and_the_log_has_the_role_to_apply(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site() as here:
            here.api.refused = {"tokenreviews"}
            with caplog.at_level(logging.INFO):
                first, second = await here.get(), await here.get()
                assert (first.status, second.status) == (500, 500)
                assert first.sentence.startswith("the review failed: the picker may not ask for it; its log has")
                assert "/metrics is answered with 500" in (here.readers.trouble or "")
                (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
                assert "kind: ClusterRole\n" in warning
                assert 'apiGroups: ["authentication.k8s.io"], resources: [tokenreviews], verbs: [create]' in warning
                assert "{kind: ServiceAccount, namespace: llm, name: picker}" in warning
                here.api.refused = set()
                assert (await here.get()).status == 200
                assert here.readers.trouble is None
            assert "/metrics can be read again" in caplog.text
            assert SECRET not in caplog.text

    run(work())


@pytest.mark.parametrize("code", [200, 502])
def test_a_proxy_that_answers_with_what_it_was_sent_puts_no_token_into_the_log(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with site() as here:

            async def echo(request: web.Request) -> web.StreamResponse:
                return web.Response(status=code, body=b"<html>" + await request.read())

            here.api.handle = echo  # type: ignore[method-assign]
            assert (await here.get()).status == 500
            assert "an answer that is not shown" in (here.readers.trouble or "")
            assert SECRET not in caplog.text + (here.readers.trouble or "")

    run(work())


def test_a_refusal_of_the_api_that_repeats_the_token_is_shown_without_it(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site() as here:

            async def invalid(_: web.Request) -> web.StreamResponse:
                return web.json_response({"message": f"spec.token: Invalid value: {SECRET!r}: too short"}, status=422)

            here.api.handle = invalid  # type: ignore[method-assign]
            assert (await here.get()).status == 500
            assert "too short" in (here.readers.trouble or "")
            assert SECRET not in caplog.text + (here.readers.trouble or "")

    run(work())


def test_an_api_server_that_is_away_is_500(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(away=True) as here:
            assert await here.get() == Verdict(
                500, "the review failed: the API server does not answer; the picker's log has the reason"
            )
            assert "127.0.0.1:9" in (here.readers.trouble or "")
            assert SECRET not in caplog.text

    run(work())


def test_a_review_that_hangs_ends_in_time() -> None:
    async def work() -> None:
        async with site(answer_s=0.2) as here:
            here.api.held.clear()
            assert (await here.get()).status == 500
            assert "did not answer within 0.2 s" in (here.readers.trouble or "")

    run(work())


def test_requests_with_one_token_at_the_same_time_are_one_review() -> None:
    async def work() -> None:
        async with site() as here:
            here.api.held.clear()
            requests = [asyncio.create_task(here.get()) for _ in range(20)]
            await here.until(lambda: here.api.at_once == 1)
            requests[0].cancel()  # a reader that leaves does not end the others' review
            here.api.held.set()
            verdicts = await asyncio.gather(*requests[1:])
            assert {verdict.status for verdict in verdicts} == {200}
            assert here.api.kinds() == ["tokenreviews", "subjectaccessreviews"]

    run(work())


def test_many_tokens_wait_for_a_few_reviews_and_more_are_sent_away() -> None:
    async def work() -> None:
        async with site() as here:
            here.api.held.clear()
            requests = [asyncio.create_task(here.get(f"t{n}")) for n in range(AT_ONCE + WAITING)]
            await here.until(lambda: here.api.at_once == AT_ONCE)
            assert (await here.get("one-more")).status == 429
            here.api.held.set()
            assert {verdict.status for verdict in await asyncio.gather(*requests)} == {401}
            assert here.api.most_at_once == AT_ONCE

    run(work())


def test_many_tokens_do_not_keep_a_known_reader_out() -> None:
    async def work() -> None:
        async with site() as here:
            assert (await here.get()).status == 200
            here.time += 400
            here.api.held.clear()
            flood = [asyncio.create_task(here.get(f"t{n}")) for n in range(AT_ONCE + WAITING)]
            await here.until(lambda: here.api.at_once == AT_ONCE)
            known = asyncio.create_task(here.get())
            await here.until(lambda: here.api.at_once == AT_ONCE + 1)
            assert (await here.get("one-more")).status == 429
            here.api.held.set()
            assert (await known).status == 200
            await asyncio.gather(*flood)
            assert not here.readers._waiting.total()

    run(work())


def test_tokens_that_are_refused_displace_no_reader_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST", 8)

    async def work() -> None:
        async with site() as here:
            assert (await here.get()).status == 200
            for n in range(20):
                assert (await here.get(f"t{n}")).status == 401
            before = len(here.api.asked)
            assert (await here.get()).status == 200
            assert len(here.api.asked) == before
            assert len(here.readers._refused_tokens) == 8

    run(work())


def test_no_token_is_kept_in_memory() -> None:
    async def work() -> None:
        async with site() as here:
            await here.get()
            await here.get("forged")
            kept = repr({name: getattr(value, "_answers", value) for name, value in vars(here.readers).items()})
            assert SECRET not in kept
            assert "forged" not in kept

    run(work())


def test_answers_are_bounded_and_end() -> None:
    time = [0.0]
    kept = Remembered[int, str](10.0, 2, lambda: time[0])
    for key in (1, 2, 3):
        kept.put(key, str(key))
    assert [kept.get(key) for key in (1, 2, 3)] == [None, "2", "3"]
    kept.put(2, "again")
    kept.put(4, "4")
    assert [kept.get(key) for key in (2, 3, 4)] == ["again", None, "4"]
    time[0] = 10.0
    assert kept.get(4) is None
    assert MOST <= 4096
