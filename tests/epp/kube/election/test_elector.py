"""Electors beside a small API server: what they write, and who leads and serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from epp.kube.client import Client
from epp.kube.election.elector import Elector
from epp.kube.election.lease import lease_name, leases_path
from epp.kube.election.term import Term
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, api_server, status

PATIENCE_S = 20
NAME = lease_name("default", "pool")
LEASES = leases_path("default")
PODS = "/api/v1/namespaces/default/pods"
QUICK = Term(duration_s=1.0, overdue_s=0.5, retry_s=0.1)
SLOW = Term(duration_s=600.0, overdue_s=500.0, retry_s=0.1)
"""Nothing happens by the end of a Lease within a test."""


class Site:
    """An API server, and electors that use it."""

    def __init__(self, server: ApiServer, stack: AsyncExitStack) -> None:
        self.server, self._stack = server, stack
        self.leases, self.pods = server.at(LEASES), server.at(PODS)
        self.electors: dict[str, Elector] = {}

    async def start(
        self, pod: str, term: Term = SLOW, *, able: Callable[[], bool] = lambda: True, beside: str = "", **made: str
    ) -> Elector:
        await self.report(pod, **made)  # type: ignore[arg-type]
        client = await self._stack.enter_async_context(Client(TokenAccess(self.server.url), answer_s=5.0))
        elector = Elector(client, namespace="default", name=NAME, term=term, able=able, pod=pod, pod_namespace=beside)
        self.electors[pod] = elector
        await elector.start()
        self._stack.push_async_callback(elector.stop)
        return elector

    async def report(self, pod: str, *, ready: bool = True, template: str = "", created: str = "") -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        metadata = {"name": pod, "creationTimestamp": created, "labels": {"pod-template-hash": template}}
        await self.pods.put({"kind": "Pod", "metadata": metadata, "status": {"conditions": conditions}})

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.leases.objects[NAME]["spec"]
        return spec

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)

    async def led_by(self, leader: Elector) -> None:
        """Wait until ``leader`` leads and it alone serves, and the others watch its pod."""
        others = [elector for elector in self.electors.values() if elector is not leader]
        await self.until(lambda: leader.leads and not any(elector.serves for elector in others))


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    async with api_server() as server, AsyncExitStack() as stack:
        yield Site(server, stack)


def run(work: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        async with site() as here:
            await work(here)

    asyncio.run(scenario())


def test_the_first_picker_makes_the_lease_as_client_go_does_and_renews_it() -> None:
    async def work(here: Site) -> None:
        elector = await here.start("epp-0")
        await here.led_by(elector)
        made = here.spec()
        assert made["holderIdentity"].startswith("epp-0_")
        assert (made["leaseDurationSeconds"], made["leaseTransitions"]) == (600, 0)
        assert made["acquireTime"] == made["renewTime"]
        assert len(made["renewTime"]) == len("2026-11-22T10:00:00.000000Z")
        await here.until(lambda: here.spec()["renewTime"] > made["renewTime"])
        assert here.spec() == {**made, "renewTime": here.spec()["renewTime"]}

    run(work)


def test_fields_and_labels_of_others_stay_in_the_lease() -> None:
    async def work(here: Site) -> None:
        metadata = {"name": NAME, "labels": {"team": "a"}}
        await here.leases.put({"metadata": metadata, "spec": {"holderIdentity": "", "strategy": "Mine"}})
        await here.led_by(await here.start("epp-0"))
        assert here.spec()["strategy"] == "Mine"
        assert here.spec()["leaseTransitions"] == 1
        assert here.leases.objects[NAME]["metadata"]["labels"] == {"team": "a"}

    run(work)


def test_a_clean_end_releases_the_lease_and_a_standby_takes_it() -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0")
        await here.led_by(first)
        second = await here.start("epp-1")
        await here.until(lambda: "standing by: 'epp-0_" in second.role)
        await first.stop()
        await here.until(lambda: second.leads)
        assert here.spec()["leaseTransitions"] == 1
        await second.stop()
        assert here.spec()["holderIdentity"] == ""
        assert here.spec()["leaseDurationSeconds"] == 1

    run(work)


@pytest.mark.parametrize("gone", [True, False])
def test_a_standby_serves_at_once_when_the_leaders_pod_is_gone_or_not_ready(gone: bool) -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0")
        await here.led_by(first)
        second = await here.start("epp-1")
        await here.led_by(first)
        await here.until(lambda: here.pods.watches > 0)
        if gone:
            await here.pods.delete("epp-0")
        else:
            await here.report("epp-0", ready=False)
        await here.until(lambda: second.serves)
        await here.until(lambda: second.leads is gone)
        if gone:
            await here.until(lambda: not first.leads)
        else:
            await here.report("epp-0", ready=True)
            await here.led_by(first)

    run(work)


@pytest.mark.parametrize(("template", "created", "serves"), [
    ("b", "2026-11-22T10:00:09Z", True), ("b", "2026-11-22T10:00:00Z", False), ("a", "2026-11-22T10:00:09Z", False),
])  # fmt: skip
def test_a_standby_of_a_newer_template_serves_beside_the_leader_that_it_replaces(
    template: str, created: str, serves: bool
) -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-a", template="a", created="2026-11-22T10:00:05Z")
        await here.led_by(first)
        second = await here.start("epp-b", template=template, created=created)
        await here.until(lambda: any("epp-b" in request.query_string for request in here.server.requests))
        await here.until(lambda: second.serves is serves)
        assert ("is being replaced" in second.role) is serves
        await first.stop()
        await here.until(lambda: second.leads)

    run(work)


def test_an_own_pod_that_is_read_slowly_delays_no_hand_over() -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0")
        await here.led_by(first)
        asked, answered, answer = asyncio.Event(), asyncio.Event(), here.pods.answer

        async def slowly(request: web.Request, name: str = "") -> web.StreamResponse:
            if "epp-1" in request.query.get("fieldSelector", ""):
                asked.set()
                await answered.wait()
            return await answer(request, name)

        here.pods.answer = slowly  # type: ignore[method-assign]
        second = await here.start("epp-1")
        await asked.wait()
        await first.stop()
        async with asyncio.timeout(2.0):  # reading the pod takes up to 5 s
            await here.until(lambda: second.leads)
        answered.set()

    run(work)


def test_pickers_look_for_pods_of_pickers_in_their_own_namespace() -> None:
    async def work(here: Site) -> None:
        here.pods = here.server.at("/api/v1/namespaces/pickers/pods")
        await here.led_by(await here.start("epp-0", beside="pickers"))
        second = await here.start("epp-1", beside="pickers")
        await here.until(lambda: here.pods.watches == 1)
        await here.report("epp-0", ready=False)
        await here.until(lambda: second.serves)
        assert not any(request.path == PODS for request in here.server.requests)

    run(work)


def test_a_pod_of_the_same_name_in_another_namespace_is_another_picker() -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0")
        await here.led_by(first)
        here.pods = here.server.at("/api/v1/namespaces/pickers/pods")
        second = await here.start("epp-0", beside="pickers")
        await here.until(lambda: "standing by: 'epp-0_" in second.role)
        await here.report("epp-0", ready=False)
        version = here.leases.version
        await here.until(lambda: here.leases.version > version + 5)  # the leader renews
        assert first.leads
        assert not second.serves
        assert here.spec()["leaseTransitions"] == here.pods.watches == 0
        await first.stop()
        await here.until(lambda: second.leads)

    run(work)


def test_a_leader_that_is_not_there_any_more_is_replaced_when_its_lease_ends() -> None:
    async def work(here: Site) -> None:
        spec = {"holderIdentity": "gone_1", "leaseDurationSeconds": 1, "leaseTransitions": 6}
        await here.leases.put({"metadata": {"name": NAME}, "spec": spec})
        electors = [await here.start(f"epp-{n}", QUICK) for n in range(3)]
        await here.until(lambda: any(elector.leads for elector in electors))
        await here.led_by(next(elector for elector in electors if elector.leads))
        assert here.spec()["leaseTransitions"] == 7

    run(work)


def test_a_leader_without_the_api_server_goes_on_and_reports_it() -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0", QUICK)
        await here.led_by(first)
        second = await here.start("epp-1", QUICK)
        await here.led_by(first)
        here.server.refuse = lambda _: web.Response(status=503)
        await here.server.cut()
        await here.until(lambda: first.trouble is not None and second.trouble is not None)
        assert "cannot be renewed" in (first.trouble or "")
        assert first.serves
        assert not second.serves
        here.server.refuse = lambda _: None
        await here.until(lambda: first.trouble is None and second.trouble is None)
        assert first.leads

    run(work)


def forbidden(*verbs: str) -> Callable[[web.Request], web.Response | None]:
    """Return what refuses requests for Leases by their methods."""

    def refuse(request: web.Request) -> web.Response | None:
        refused = request.path.startswith(LEASES) and request.method in verbs
        return status(403, "Forbidden", "leases are forbidden") if refused else None

    return refuse


@pytest.mark.parametrize("verbs", [("GET",), ("POST", "PATCH"), ("GET", "POST", "PATCH")])
def test_pickers_that_may_not_use_leases_all_serve_and_say_which_rule_is_missing(
    verbs: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(here: Site) -> None:
        here.server.refuse = forbidden(*verbs)
        electors = [await here.start(f"epp-{n}") for n in range(2)]
        await here.until(lambda: all(elector.serves for elector in electors))
        assert not any(elector.leads for elector in electors)
        await here.until(lambda: all("a Role with this rule" in (elector.trouble or "") for elector in electors))
        warnings = [record.message for record in caplog.records if "this rule" in record.message]
        assert len([text for text in warnings if "goes on" in text]) == 2

    run(work)


def test_a_right_to_leases_that_is_given_later_is_used() -> None:
    async def work(here: Site) -> None:
        here.server.refuse = forbidden("GET", "POST", "PATCH")
        elector = await here.start("epp-0", QUICK)
        await here.until(lambda: elector.serves)
        here.server.refuse = lambda _: None
        await here.until(lambda: elector.leads and elector.trouble is None)

    run(work)


RUBBISH: list[dict[str, Any]] = [
    {},
    {"holderIdentity": 7, "leaseDurationSeconds": "long", "leaseTransitions": -1, "acquireTime": [], "renewTime": {}},
    {"holderIdentity": "a,b=c\n_", "leaseDurationSeconds": 1, "leaseTransitions": 2**40, "renewTime": "never"},
    {"holderIdentity": "x" * 10_000, "leaseDurationSeconds": True},
]


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_a_lease_with_rubbish_is_taken(rubbish: dict[str, Any]) -> None:
    async def work(here: Site) -> None:
        await here.leases.put({"metadata": {"name": NAME}, "spec": rubbish})
        await here.led_by(await here.start("epp-0", QUICK))
        assert 0 <= here.spec()["leaseTransitions"] < 2**31

    run(work)


def test_a_lease_that_is_deleted_by_hand_comes_back_with_its_leader() -> None:
    patient = Term(duration_s=600.0, overdue_s=500.0, retry_s=5.0)  # so long a standby leaves it to the leader

    async def work(here: Site) -> None:
        first = await here.start("epp-0", patient)
        await here.led_by(first)
        await here.start("epp-1", patient)
        await here.led_by(first)
        await here.leases.delete(NAME)
        await here.until(lambda: NAME in here.leases.objects)
        assert here.spec()["holderIdentity"].startswith("epp-0_")
        await here.led_by(first)

    run(work)


def test_a_lease_that_is_emptied_by_hand_has_one_leader_again() -> None:
    async def work(here: Site) -> None:
        electors = [await here.start(f"epp-{n}") for n in range(2)]
        await here.until(lambda: any(elector.leads for elector in electors))
        await here.leases.put({"metadata": {"name": NAME}, "spec": {}})
        await here.until(lambda: bool(here.spec().get("holderIdentity")))
        await here.until(lambda: [elector.leads for elector in electors].count(True) == 1)

    run(work)


def test_a_picker_that_is_not_able_leaves_the_lease_to_others() -> None:
    able = [False]

    async def work(here: Site) -> None:
        unable = await here.start("epp-0", able=lambda: able[0])
        second = await here.start("epp-1")
        await here.led_by(second)
        assert not unable.leads
        await second.stop()
        able[0] = True
        await here.until(lambda: unable.leads)

    run(work)


def test_a_leader_that_is_not_able_any_more_hands_over() -> None:
    able = [True]

    async def work(here: Site) -> None:
        first = await here.start("epp-0", QUICK, able=lambda: able[0])
        await here.led_by(first)
        second = await here.start("epp-1", QUICK)
        await here.led_by(first)
        able[0] = False
        await here.led_by(second)
        able[0] = True
        await here.led_by(second)

    run(work)


def test_a_standby_at_rest_sends_no_requests() -> None:
    async def work(here: Site) -> None:
        first = await here.start("epp-0")
        await here.led_by(first)
        await here.start("epp-1")
        await here.led_by(first)
        await here.until(lambda: here.pods.watches == 1 and here.leases.watches == 2)
        version = here.leases.version
        await here.until(lambda: here.leases.version > version + 3)  # the leader has renewed
        seen = len(here.server.requests)
        await here.until(lambda: here.leases.version > version + 13)
        assert {request.method for request in here.server.requests[seen:]} == {"PATCH"}

    run(work)


def test_the_metrics_show_who_leads_and_what_failed() -> None:
    async def work(here: Site) -> None:
        elector = await here.start("epp-0", QUICK)
        await here.led_by(elector)
        shown = {reading.name: next(iter(reading.samples))[1] for reading in elector.readings()}
        assert shown["leader_election_master_status"] == shown["tierwise_election_leading"] == 1.0
        assert shown["tierwise_election_serving"] == 1.0
        assert shown["tierwise_election_renewal_failures"] == shown["tierwise_election_holder_changes"] == 0
        assert 0.0 <= shown["tierwise_election_lease_age_seconds"] < PATIENCE_S

    run(work)
