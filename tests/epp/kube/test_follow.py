"""A follower's objects are the API server's, whatever happens between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.kube import backoff, pages
from epp.kube import client as client_module
from epp.kube.client import Client
from epp.kube.errors import Refused, Unreachable
from epp.kube.follow import IN_VAIN, Follower, Kind
from epp.kube.objects import Pod
from epp.kube.pages import PAGE_BYTES, PageSize
from epp.kube.unreadable import MOST_NAMED, Unreadable
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, api_server, status

PATIENCE_S = 20
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, node: str = "n") -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node}}


class Kept:
    """A listener that keeps what it is given, and a watch's order of calls."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.lists = 0

    def listed(self, objects: list[Pod]) -> Iterator[None]:
        self.nodes = {item.metadata.name: item.spec.node_name for item in objects}
        self.lists += 1
        yield

    def changed(self, item: Pod) -> None:
        self.nodes[item.metadata.name] = item.spec.node_name

    def removed(self, item: Pod) -> None:
        self.nodes.pop(item.metadata.name, None)


class Site:
    """An API server, a follower of its pods, and what the follower's listener keeps."""

    def __init__(self, server: ApiServer, *, page: int, silent_s: float, **kind: Any) -> None:
        self.server, self.kept = server, Kept()
        self.access = TokenAccess(server.url)
        self.client = Client(self.access, answer_s=5.0, silent_s=silent_s)
        self.needed = asyncio.Event()
        self.needed.set()
        self.follower = Follower(
            self.client, Kind(PODS, Pod, "app=vllm", **kind), self.kept, random=lambda: 0.0,
            clock=asyncio.get_running_loop().time, page=page, needed=self.needed,
        )  # fmt: skip

    def truth(self) -> dict[str, str]:
        return {name: item["spec"]["nodeName"] for name, item in self.server.objects.items()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)

    async def equal(self) -> None:
        """Wait until the listener has what the server has, and a watch is open for what comes."""
        await self.until(lambda: self.follower.synced and self.kept.nodes == self.truth() and self.server.watches > 0)


@asynccontextmanager
async def site(*names: str, page: int = 500, silent_s: float = 20.0, **kind: Any) -> AsyncIterator[Site]:
    async with api_server() as server:
        for name in names:
            await server.put(pod(name))
        one = Site(server, page=page, silent_s=silent_s, **kind)
        async with one.client:
            task = asyncio.create_task(one.follower.run())
            try:
                yield one
            finally:
                task.cancel()
                await asyncio.wait({task})


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_objects_are_listed_by_pages_and_then_watched_from_the_lists_version() -> None:
    async def work() -> None:
        async with site("a", "b", "c", page=2) as here:
            await here.equal()
            lists = [r for r in here.server.requests if "watch" not in r.query]
            assert [r.query.get("continue") for r in lists] == [None, "4:2"]
            watch = here.server.requests[-1].query
            assert watch["resourceVersion"] == "4"
            assert watch["allowWatchBookmarks"] == "true"
            assert 300 <= int(watch["timeoutSeconds"]) <= 600
            assert {r.query["labelSelector"] for r in here.server.requests} == {"app=vllm"}
            await here.server.put(pod("d"))
            await here.server.put(pod("a", "m"))
            await here.server.delete("b")
            await here.equal()
            assert here.kept.lists == 1

    run(work())


def test_a_broken_watch_goes_on_from_the_last_version_without_a_list() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            await here.server.put(pod("b"))
            await here.equal()
            await here.server.cut()
            await here.server.put(pod("c"))
            await here.equal()
            assert here.kept.lists == 1
            assert here.server.requests[-1].query["resourceVersion"] == "3"
            await here.until(lambda: here.follower.trouble is None)

    run(work())


def test_a_bookmark_moves_the_version_from_which_a_watch_goes_on() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            here.server.version = 77
            await here.server.bookmark()
            await here.until(lambda: here.follower.events == 1)
            await here.server.cut()
            await here.until(lambda: here.server.requests[-1].query.get("resourceVersion") == "77")

    run(work())


def test_after_a_compaction_the_difference_is_applied_deletions_too() -> None:
    async def work() -> None:
        async with site("a", "b") as here:
            await here.equal()
            await here.server.cut()
            here.server.refuse = lambda _: status(503, "ServiceUnavailable", "starting")
            await here.until(lambda: here.follower.trouble is not None)
            await here.server.delete("a")
            await here.server.put(pod("c"))
            await here.server.compact()
            here.server.refuse = lambda _: None
            await here.equal()
            assert here.kept.lists == 2
            await here.until(lambda: here.follower.trouble is None)

    run(work())


def test_an_error_event_with_410_reads_the_list_again_at_once() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            await here.server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await here.until(lambda: here.kept.lists == 2)
            await here.until(lambda: here.follower.trouble is None)

    run(work())


def test_a_list_whose_page_is_no_longer_kept_changes_nothing_and_begins_again() -> None:
    async def work() -> None:
        async with api_server() as server:
            for name in "abc":
                await server.put(pod(name))
            here = Site(server, page=2, silent_s=20.0)

            def compacted(request: web.Request) -> web.StreamResponse | None:
                if "continue" in request.query and request.query["continue"].startswith("4:"):
                    assert not here.kept.lists
                    server.version, server._oldest, server._states[5] = 5, 5, server._states[4]
                return None

            server.refuse = compacted
            async with here.client:
                task = asyncio.create_task(here.follower.run())
                await here.equal()
                task.cancel()
                await asyncio.wait({task})
            assert here.kept.lists == 1

    run(work())


def test_a_silent_watch_is_opened_again() -> None:
    async def work() -> None:
        async with site("a", silent_s=0.2) as here:
            await here.equal()
            here.server.silent = True
            await here.server.put(pod("b"))
            await here.until(lambda: "nothing came for 0.2 s" in (here.follower.trouble or ""))
            here.server.silent = False
            await here.equal()

    run(work())


def test_an_expired_token_is_read_again() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            here.server.token, here.access.fresh = "b-token", ["b-token"]
            await here.server.cut()
            await here.server.put(pod("b"))
            await here.equal()
            await here.until(lambda: here.follower.trouble is None)

    run(work())


REFUSALS: list[tuple[Callable[[], web.Response], type[Exception], str]] = [
    (lambda: status(403, "Forbidden", 'cannot list resource "pods"'), Refused, "a Role with this rule is missing"),
    (lambda: status(401, "Unauthorized", "Unauthorized"), Refused, "the token is missing, expired"),
    (lambda: status(500, "InternalError", "etcd is gone"), Refused, "500 InternalError: etcd is gone"),
    (lambda: web.Response(status=502, text="<html>Bad Gateway</html>"), Refused, "<html>.*is a proxy in between"),
    (lambda: web.Response(text="<html>Welcome</html>"), Unreachable, "the answer is not the API's.*Welcome"),
    (lambda: web.Response(text='{"items": [{"metadata": 7}]}'), Unreachable, "the answer is not a list"),
    (lambda: web.Response(status=302, headers={"Location": "/"}), Refused, "302"),
]


@pytest.mark.parametrize(("answer", "kind", "sentence"), REFUSALS)
def test_what_is_refused_is_named_and_asked_again_until_it_is_put_right(
    answer: Callable[[], web.Response], kind: type[Exception], sentence: str
) -> None:
    async def work() -> None:
        async with api_server() as server:
            await server.put(pod("a"))
            server.refuse = lambda _: answer()
            here = Site(server, page=500, silent_s=20.0)
            async with here.client:
                with pytest.raises(kind, match=sentence):
                    await here.follower._read_list()
                task = asyncio.create_task(here.follower.run())
                await here.until(lambda: here.follower.trouble is not None)
                assert not here.follower.synced
                server.refuse = lambda _: None
                await here.equal()
                task.cancel()
                await asyncio.wait({task})

    run(work())


def test_the_wait_that_the_server_asks_for_is_kept() -> None:
    async def work() -> None:
        async with api_server() as server:
            here = Site(server, page=500, silent_s=20.0)
            slow_down = status(429, "TooManyRequests", "later", retryAfterSeconds=7)
            server.refuse = lambda _: slow_down
            async with here.client:
                with pytest.raises(Refused) as refused:
                    await here.follower._read_list()
                assert refused.value.retry_after_s == 7
                assert here.follower._failed(refused.value) == 7

    run(work())


@pytest.mark.parametrize(
    "line",
    [
        b"rubbish\n",
        b'{"type": "ADDED", "object": {"metadata": 7}}\n',
        b'{"type": "SUNG", "object": {}}\n',
        b'{"type": "AD',
    ],
)
def test_what_is_no_event_ends_the_watch_and_changes_nothing(line: bytes) -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()

            async def rubbish(request: web.Request) -> web.StreamResponse:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(line)
                return response

            broken = [True]
            handle = here.server._watch

            async def once(request: web.Request) -> web.StreamResponse:
                return await (rubbish(request) if broken else handle(request))

            here.server._watch = once  # type: ignore[method-assign]
            await here.server.cut()
            await here.until(lambda: here.follower.failures > 1)
            assert here.kept.nodes == {"a": "n"}
            broken.clear()
            await here.server.put(pod("b"))
            await here.equal()

    run(work())


def test_an_event_that_comes_twice_changes_nothing_and_one_from_before_reads_the_list_again() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            await here.server.put(pod("b"))
            await here.server.put(pod("b", "m"))
            await here.equal()
            newest = here.server.objects["b"]
            await here.server.send("MODIFIED", newest)
            await here.server.send("MODIFIED", newest)
            await here.server.put(pod("c"))
            await here.equal()
            assert (here.kept.lists, here.follower.failures) == (1, 0)
            old = {**newest, "metadata": {**newest["metadata"], "resourceVersion": "3"}, "spec": {"nodeName": "n"}}
            await here.server.send("MODIFIED", old)
            await here.until(lambda: here.kept.lists == 2)
            await here.equal()
            assert here.kept.nodes["b"] == "m"
            assert here.follower.failures == 1

    run(work())


def test_an_object_of_more_than_a_megabyte_arrives_in_pieces() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            large = pod("large")
            large["metadata"]["annotations"] = {"x": "y" * 1_500_000}
            await here.server.put(large)
            await here.equal()

    run(work())


@pytest.mark.parametrize("body", ["{}", '{"kind": "Status", "metadata": {}, "status": "Failure"}', '{"items": null}'])
def test_json_that_is_not_a_list_removes_nothing(body: str) -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            gone = status(410, "Expired", "too old")
            here.server.refuse = lambda r: gone if "watch" in r.query else web.Response(text=body)
            await here.server.cut()
            await here.until(lambda: "the answer is not a list" in (here.follower.trouble or ""))
            assert here.kept.nodes == {"a": "n"}

    run(work())


def test_a_list_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_OBJECTS", 10)

    async def work() -> None:
        async with api_server() as server:
            endless = {"metadata": {"resourceVersion": "5", "continue": "on"}, "items": []}
            server.refuse = lambda _: web.json_response(endless)
            here = Site(server, page=5, silent_s=20.0)
            async with here.client:
                with pytest.raises(Unreachable, match="without end"):
                    await here.follower._read_list()
            assert len(server.requests) == 3

    run(work())


def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 10_000)

    async def work() -> None:
        async with api_server() as server:
            for n in range(30):
                await server.put({**pod(f"p{n}"), "x": "y" * 1000})
            here = Site(server, page=20, silent_s=20.0)
            async with here.client:
                await here.follower._read_list()
            assert (here.kept.nodes, here.follower.failures) == (here.truth(), 0)
            assert [r.query["limit"] for r in server.requests][:3] == ["20", "10", "5"]
            monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 500)
            async with here.client:
                with pytest.raises(Unreachable, match="an answer of more than 500 bytes"):
                    await here.follower._read_list()
            assert server.requests[-1].query["limit"] == "1"

    run(work())


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 1 << 28)), max_size=8), st.integers(1, 250))
def test_the_size_of_a_page_follows_the_bytes_of_its_objects(seen: list[tuple[int, int]], most: int) -> None:
    size = PageSize(most)
    for objects, total in seen:
        size.learn(objects, total)
        assert 1 <= size.objects <= most
        if objects and size.objects > 1:
            assert size.objects * total / objects <= PAGE_BYTES


def test_a_list_with_nulls_is_read() -> None:
    async def work() -> None:
        async with api_server() as server:
            strange = pod("a")
            strange["metadata"] |= {"labels": None, "namespace": None}
            page = {"metadata": {"resourceVersion": "5", "continue": None}, "items": [strange, None, pod("b")]}
            server.refuse = lambda r: None if "watch" in r.query else web.json_response(page)
            here = Site(server, page=10, silent_s=20.0)
            async with here.client:
                await here.follower._read_list()
            assert here.kept.nodes == {"a": "n", "b": "n"}

    run(work())


STRANGE: list[Any] = [
    {"spec": {"nodeName": "n"}},
    {"metadata": None},
    {"metadata": 7},
    {"metadata": {"name": 7}},
    {"metadata": {"name": "", "namespace": "default"}},
    {"metadata": {"name": "odd", "namespace": "default", "labels": ["x"]}},
    {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"nodeName": {}}},
    [],
]


@pytest.mark.parametrize("strange", STRANGE)
def test_an_object_that_cannot_be_read_costs_the_list_and_the_watch_nothing_else(
    strange: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with api_server() as server:
            await server.put(pod("a"))
            await server.put(pod("b"))
            here = Site(server, page=10, silent_s=20.0)
            items = [server.objects["a"], strange, server.objects["b"]]
            page = {"metadata": {"resourceVersion": str(server.version)}, "items": items}
            server.refuse = lambda r: None if "watch" in r.query else web.json_response(page)
            async with here.client:
                task = asyncio.create_task(here.follower.run())
                await here.equal()
                assert here.client.unreadable.counts == {("", "pods"): 1}
                await server.put(pod("c"))
                await server.send("ADDED", strange)
                await server.send("DELETED", strange)
                await server.put(pod("d"))
                await here.equal()
                assert (here.kept.lists, here.follower.failures) == (1, 0)
                assert here.client.unreadable.counts == {("", "pods"): 3}
                task.cancel()
                await asyncio.wait({task})

    run(work())
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    named = "default/odd" if "odd" in str(strange) else "without a name"
    assert named in warning
    assert "is left out" in warning


def test_an_object_that_becomes_unreadable_is_gone_until_it_can_be_read() -> None:
    async def work() -> None:
        async with site("a", "b") as here:
            await here.equal()
            await here.server.put(pod("c"))
            await here.server.send("MODIFIED", {"metadata": {"name": "a", "namespace": "default"}, "spec": 7})
            await here.until(lambda: here.kept.nodes == {"b": "n", "c": "n"})
            await here.server.put(pod("a", "m"))
            await here.equal()
            assert (here.kept.lists, here.follower.failures) == (1, 0)

    run(work())


def test_of_the_only_object_that_is_followed_what_cannot_be_read_is_a_trouble_and_changes_nothing() -> None:
    async def work() -> None:
        async with site("a", name="a") as here:
            await here.equal()
            await here.server.put({"metadata": {"name": "a"}, "spec": 7})
            await here.until(lambda: "cannot be read" in (here.follower.trouble or ""))
            await here.until(lambda: "the answer is not the API's" in (here.follower.trouble or ""))
            assert here.kept.nodes == {"a": "n"}
            await here.server.put(pod("a", "m"))
            await here.until(lambda: here.kept.nodes == {"a": "m"})

    run(work())


def test_of_many_objects_that_cannot_be_read_a_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = Unreadable()
    for n in range(3 * MOST_NAMED):
        for _ in range(2):
            assert unreadable.note(PODS, json.dumps({"metadata": {"name": f"p{n}"}}).encode(), "no") == {
                "name": f"p{n}"
            }
    assert unreadable.counts == {("", "pods"): 6 * MOST_NAMED}
    assert len(caplog.records) == MOST_NAMED
    (reading,) = unreadable.readings()
    assert list(reading.samples) == [(("", "pods"), 6 * MOST_NAMED)]


def test_a_version_that_is_refused_again_and_again_waits_longer_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with api_server() as server:
            here = Site(server, page=500, silent_s=20.0)
            server.refuse = lambda r: status(410, "Expired", "too old") if "watch" in r.query else None
            waits = list[float]()
            failed = here.follower._failed
            here.follower._failed = lambda error: waits.append(failed(error)) or 0.0  # type: ignore[method-assign,func-returns-value]
            async with here.client:
                task = asyncio.create_task(here.follower.run())
                await here.until(lambda: len(waits) >= 10)
                task.cancel()
                await asyncio.wait({task})
            assert waits[:4] == [0.0, 0.25, 0.5, 1.0]

    with caplog.at_level("INFO"):
        run(work())
    assert [r.levelname for r in caplog.records if r.name == "epp.kube.follow"] == ["WARNING"]


@pytest.mark.parametrize("cut", [False, True])
def test_a_watch_that_fails_at_one_event_again_and_again_begins_with_a_new_list(
    cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)
    event = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "cannot decode an object"}
    line = b'{"type": "ADDED", "obj' if cut else json.dumps({"type": "ERROR", "object": event}).encode() + b"\n"

    async def work() -> None:
        async with api_server() as server:
            await server.put(pod("a"))
            here, first = Site(server, page=10, silent_s=20.0), server.version

            def fails(request: web.Request) -> web.Response | None:
                old = "watch" in request.query and int(request.query["resourceVersion"]) <= first
                return web.Response(body=line) if old else None

            server.refuse = fails
            async with here.client:
                task = asyncio.create_task(here.follower.run())
                await here.until(lambda: here.kept.lists == 1)
                await server.put(pod("b"))
                await here.equal()
                assert here.kept.lists == 2
                assert here.follower.failures == IN_VAIN
                task.cancel()
                await asyncio.wait({task})

    run(work())


@pytest.mark.parametrize(
    "answer",
    [
        lambda: status(500, "InternalError", "etcdserver: mvcc: cannot decode an object"),
        lambda: web.Response(status=500, text="panic"),
        lambda: status(406, "NotAcceptable", "no"),
        lambda: web.Response(text="<html>Welcome</html>"),
    ],
)
def test_a_version_at_which_no_watch_can_be_opened_is_given_up_after_a_few_tries(
    answer: Callable[[], web.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)

    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            await here.until(lambda: here.follower.trouble is None)
            old, opened = str(here.server.version), list[str]()

            def refuse(request: web.Request) -> web.StreamResponse | None:
                if "watch" in request.query:
                    opened.append(request.query["resourceVersion"])
                return answer() if request.query.get("resourceVersion") == old else None

            here.server.refuse = refuse
            await here.server.cut()
            await here.server.put(pod("b"))
            await here.equal()
            assert here.kept.lists == 2
            assert opened.count(old) <= IN_VAIN

    run(work())


@pytest.mark.parametrize(
    "answer",
    [
        lambda: status(503, "ServiceUnavailable", "starting"),
        lambda: web.Response(status=502, text="<html>Bad Gateway</html>"),
        lambda: status(429, "TooManyRequests", "later"),
        lambda: status(403, "Forbidden", "no"),
        lambda: status(401, "Unauthorized", "no"),
    ],
)
def test_an_api_server_that_is_away_for_long_is_not_asked_for_a_list(
    answer: Callable[[], web.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)

    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            here.server.refuse = lambda _: answer()
            await here.server.cut()
            await here.until(lambda: here.follower.failures > IN_VAIN)
            here.server.refuse = lambda _: None
            await here.until(lambda: here.follower.trouble is None)
            assert here.kept.lists == 1

    run(work())


def test_an_api_server_that_is_away_has_one_warning_in_plain_words(
    caplog: pytest.LogCaptureFixture, free_tcp_port: int
) -> None:
    """Over TLS too, of which aiohttp's own sentence shows an object; and the next outage has a warning again."""
    server = f"https://127.0.0.1:{free_tcp_port}"

    async def scenario() -> None:
        async with Client(TokenAccess(server), answer_s=5.0) as client, asyncio.timeout(PATIENCE_S):
            for _ in range(2):
                failed = [asyncio.Event() for _ in range(3)]
                followers = [
                    Follower(
                        client, Kind(f"{PODS}{at}", Pod), Kept(), random=lambda: 0.0, clock=lambda: 0.0,
                        on_failure=each.set,
                    )
                    for at, each in enumerate(failed)
                ]  # fmt: skip
                tasks = [asyncio.create_task(each.run()) for each in followers]
                for each in failed:
                    await each.wait()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert all("Connection refused" in (each.trouble or "") for each in followers)

    run(scenario())
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    for warning in warnings:
        assert f"no connection to 127.0.0.1:{free_tcp_port}: Connection refused; nothing was read yet" in warning
        assert "SSLContext" not in warning


def test_a_version_beyond_every_version_there_is_begins_with_a_new_list() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            late = [status(504, "Timeout", "Too large resource version: 9, current: 2")]
            here.server.refuse = lambda r: late.pop() if late and "watch" in r.query else None
            await here.server.cut()
            await here.until(lambda: here.kept.lists == 2)
            await here.equal()

    run(work())


def test_a_quiet_watch_that_is_open_again_ends_the_trouble() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            here.server.refuse = lambda _: status(500, "InternalError", "etcd is gone")
            await here.server.cut()
            await here.until(lambda: here.follower.trouble is not None)
            here.server.refuse = lambda _: None
            await here.until(lambda: here.follower.trouble is None)
            assert here.follower.events == 0

    run(work())


def test_blank_lines_of_a_watch_are_skipped_and_a_long_line_is_joined_once() -> None:
    async def work() -> None:
        async with site("a") as here:
            await here.equal()
            event = b'{"type": "ADDED", "object": {"metadata": {"name": "b", "resourceVersion": "9"}}}'

            async def pieces(request: web.Request) -> web.StreamResponse:
                response = web.StreamResponse()
                await response.prepare(request)
                for at in range(len(event)):
                    await response.write(event[at : at + 1])
                await response.write(b"\n\n \n" + event + b"\n")
                return response

            here.server._watch = pieces  # type: ignore[method-assign]
            await here.server.cut()
            await here.until(lambda: here.follower.events >= 2)
            assert here.kept.nodes == {"a": "n", "b": ""}

    run(work())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.sampled_from("nmk")),
        st.tuples(st.sampled_from(["delete", "cut", "compact", "bookmark"]), st.sampled_from("abcdef"), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.integers(1, 4))
def test_whatever_happens_the_listener_ends_with_the_servers_objects(
    steps: list[tuple[str, str, str]], page: int
) -> None:
    async def work() -> None:
        async with site("a", "b", page=page) as here:
            for step, name, node in steps:
                match step:
                    case "put":
                        await here.server.put(pod(name, node))
                    case "delete" if name in here.server.objects:
                        await here.server.delete(name)
                    case "cut":
                        await here.server.cut()
                    case "compact":
                        await here.server.compact()
                    case _:
                        await here.server.bookmark()
                await asyncio.sleep(0)
            await here.equal()

    run(work())
