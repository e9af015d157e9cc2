"""The command against an API server that refuses, is slow, or is something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from epp.doctor import command
from epp.doctor.command import run_doctor
from epp.doctor.options import DoctorOptions
from epp.errors import ConfigError

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
GROUPS = {"groups": [{"name": "inference.networking.k8s.io", "versions": [
    {"groupVersion": "inference.networking.k8s.io/v1"}]}]}  # fmt: skip


def look(answer: Answer, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return the exit status and the causes, with an API server that answers every request by ``answer``.

    Raises: ConfigError as the command does.
    """

    async def scenario() -> int:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        file = folder / "kubeconfig"
        server = f"http://127.0.0.1:{runner.addresses[0][1]}"
        file.write_text(json.dumps({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "c", "user": {"token": "t"}}],
        }))  # fmt: skip
        try:
            return await asyncio.to_thread(run_doctor, DoctorOptions(kubeconfig=file, namespace="llm", json=True))
        finally:
            await runner.cleanup()

    status = asyncio.run(scenario())
    return status, [one["cause"] for one in json.loads(capsys.readouterr().out)["findings"]]


async def html(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>sign in</html>", content_type="text/html")


async def forbidding(request: web.Request) -> web.StreamResponse:
    if request.path == "/version":
        return web.json_response({})
    if request.path == "/apis":
        return web.json_response(GROUPS)
    refusal = {"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}
    return web.json_response(refusal, status=403)


async def empty(request: web.Request) -> web.StreamResponse:
    if request.path in ("/version", "/apis"):
        return web.json_response(GROUPS)
    if "inferencepools" in request.path:
        refusal = {"kind": "Status", "status": "Failure", "message": "unknown", "reason": "NotFound", "code": 404}
        return web.json_response(refusal, status=404)
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [], "fromTheFuture": {"a": [1]}})


def test_a_page_of_something_else_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="is a proxy in between") as refused:
        look(html, tmp_path, capsys)
    assert "\n" not in str(refused.value)


def test_an_api_server_that_does_not_answer_in_time_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ANSWER_S", 0.2)

    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    with pytest.raises(ConfigError, match="nothing came for"):
        look(slow, tmp_path, capsys)


def test_an_account_without_rights_is_said_for_each_resource(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, causes = look(forbidding, tmp_path, capsys)
    assert (status, set(causes)) == (2, {"could-not-look"})
    assert len(causes) == 5


def test_a_cluster_without_definitions_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(empty, tmp_path, capsys) == (1, ["no-definitions"])


async def odd(request: web.Request) -> web.StreamResponse:
    if request.path in ("/version", "/apis"):
        return web.json_response(GROUPS)
    items = [{"metadata": {"name": "qwen", "namespace": "llm"}, "spec": 5}] if "inferencepools" in request.path else []
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


def test_an_object_in_no_known_form_is_said_and_does_not_count_as_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert look(odd, tmp_path, capsys) == (2, ["could-not-look"])


async def nowhere(request: web.Request) -> web.StreamResponse:
    if request.path in ("/version", "/apis"):
        return web.json_response(GROUPS)
    if request.path == "/api/v1/namespaces/llm":
        refusal = {"kind": "Status", "status": "Failure", "message": "unknown", "reason": "NotFound", "code": 404}
        return web.json_response(refusal, status=404)
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


def test_a_namespace_that_does_not_exist_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(nowhere, tmp_path, capsys) == (1, ["no-such-namespace"])


def test_a_cluster_that_keeps_its_version_to_itself_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def secretive(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            refusal = {"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}
            return web.json_response(refusal, status=403)
        return await nowhere(request)

    assert look(secretive, tmp_path, capsys) == (1, ["no-such-namespace"])
