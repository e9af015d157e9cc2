"""Requests that write, and what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from epp.kube.client import Client
from epp.kube.errors import Refused
from epp.kube.objects import Decoder, Pod
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, api_server

PODS = "/api/v1/namespaces/default/pods"
POD = Decoder(Pod)


def run(test: Callable[[ApiServer, Client], Awaitable[None]]) -> None:
    async def work() -> None:
        async with api_server() as server, Client(TokenAccess(server.url)) as client:
            await test(server, client)

    asyncio.run(work())


def test_an_object_is_created_once_replaced_and_patched() -> None:
    async def test(server: ApiServer, client: Client) -> None:
        pods = server.at(PODS)
        made = await client.send("POST", PODS, {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}}, POD)
        assert made.metadata.name == "a"
        with pytest.raises(Refused) as refused:
            await client.send("POST", PODS, {"metadata": {"name": "a"}}, POD)
        assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")
        version = made.metadata.resource_version
        moved = {"metadata": {"name": "a", "resourceVersion": version}, "spec": {"nodeName": "m"}}
        assert (await client.send("PUT", f"{PODS}/a", moved, POD)).spec.node_name == "m"
        with pytest.raises(Refused) as refused:
            await client.send("PUT", f"{PODS}/a", moved, POD)
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        patched = await client.send("PATCH", f"{PODS}/a", {"metadata": {"labels": {"app": "vllm"}}}, POD)
        assert patched.metadata.labels == {"app": "vllm"}
        assert patched.spec.node_name == "m"
        patched = await client.send("PATCH", f"{PODS}/a", {"metadata": {"labels": None}}, POD)
        assert patched.metadata.labels is None
        assert list(pods.objects) == ["a"]
        assert (await client.get(f"{PODS}/a", POD)).spec.node_name == "m"

    run(test)


def test_each_body_has_the_type_that_its_method_needs() -> None:
    async def test(server: ApiServer, client: Client) -> None:
        await client.send("POST", PODS, {"metadata": {"name": "a"}}, POD)
        await client.send("PATCH", f"{PODS}/a", {"spec": {"nodeName": "n"}}, POD)
        types = [request.headers["Content-Type"] for request in server.requests]
        assert types == ["application/json", "application/merge-patch+json"]

    run(test)


def test_a_write_is_repeated_with_a_fresh_token_after_401() -> None:
    async def test(server: ApiServer, client: Client) -> None:
        server.token = "fresh"
        assert isinstance(client.access, TokenAccess)
        client.access.fresh.append("fresh")
        await client.send("POST", PODS, {"metadata": {"name": "a"}}, POD)
        assert list(server.objects) == ["a"]
        assert len(server.requests) == 2

    run(test)
