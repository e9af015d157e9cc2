"""The command ``tierwise explain`` against a running picker, as a user types it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from epp.commandline import cli
from epp.config.defaults import written_default
from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.decision import RequestHead
from epp.explain.options import DebugOptions
from epp.served.card import read_cards
from epp.server.app import App
from epp.server.settings import Settings
from tests.epp.explain.test_server import CONFIG, ENDPOINTS, LOOPBACK, body, running


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a picker that has placed one request."""
    loop = asyncio.new_event_loop()
    app = App(build(load_text(CONFIG)), Settings(endpoints=ENDPOINTS, debug=DebugOptions(port=0)))
    loop.run_until_complete(app.start())
    app.director.decide(RequestHead({":path": "/v1/completions"}), body())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield f"http://{LOOPBACK}:{app.debug_port}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(app.stop(0.0))
    loop.close()


@pytest.fixture(autouse=True)
def wide_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print each row on one line."""
    monkeypatch.setenv("COLUMNS", "400")


def test_without_a_body_it_shows_the_endpoints(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"--url={url}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pool epp, pid {os.getpid()}, at {url}"
    assert lines[1] == "endpoints: 3, requests in flight: 1"
    assert sum("512 of 64,000" in line for line in lines) == 1
    assert [line.split()[0] for line in lines if line.startswith("10.") and " ago" in line] == list(ENDPOINTS)


def test_a_body_becomes_a_table_with_the_pick_marked_and_one_sentence(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(body())
    assert cli.main(["explain", f"--url={url}", "--body", str(file)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    for title in ("queue-scorer ×2", "gpu-prefix ×1", "cpu-prefix ×0.5", "total"):
        assert title in lines[2]
    rows = [line.split()[0] for line in lines if line.startswith(("→", "2.", " ")) and "8000 " in line]
    assert rows == ["→", "2.", rows[2]], "the pick, the fallback, the rest"
    (picked,) = [line for line in lines if line.startswith("→")]
    assert picked.split()[1] in ENDPOINTS
    assert lines[-1].startswith(f"{picked.split()[1]} has the highest total")
    assert "sphinx" not in printed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body())))
    assert cli.main(["explain", f"--url={url}", "--body=-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pick"] == picked.split()[1]


def test_a_prompt_will_do(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"--url={url}", "--model=m", "--prompt", "hello"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pool epp, pid {os.getpid()}, at {url}"
    assert lines[1].startswith("/v1/completions, model m, about")


def test_a_prompt_without_a_model_is_asked_about_with_one_that_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> int:
        async with running(written_default()) as (app, _):
            for address in ENDPOINTS:
                app.core.catalog.set_list(address, read_cards(b'{"data": [{"id": "served-here"}]}'), complete=True)
            url = f"http://{LOOPBACK}:{app.debug_port}"
            return await asyncio.to_thread(cli.main, ["explain", f"--url={url}", "--prompt", "hello"])

    assert asyncio.run(scenario()) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("/v1/completions, model served-here, about")


def test_messages_are_asked_about_as_chat(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}))
    assert cli.main(["explain", f"--url={url}", "--body", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("/v1/chat/completions, ")


def test_a_request_that_would_be_refused_is_exit_code_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"--url={url}", "--prompt=x", "--subset=10.9.9.9"]) == 1
    *_, reason, status = capsys.readouterr().out.splitlines()
    assert reason.endswith("serving the request.")
    assert status == "A client would get status 503 ServiceUnavailable."


def test_a_closed_port_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
    assert cli.main(["explain", f"--url=http://{LOOPBACK}:{port}"]) == cli.USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert f"no picker answers at http://{LOOPBACK}:{port}" in printed.err
    assert "--debug=false" in printed.err


@pytest.mark.parametrize("wrong", ["ftp://x", "localhost:9091", "http://", "http://h:999999", "https://h"])
def test_a_url_that_is_none_is_one_sentence(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"--url={wrong}"]) == cli.USAGE_ERROR
    assert f"--url={wrong}: " in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--body=/no/such/file"]) == cli.USAGE_ERROR
    assert capsys.readouterr().err == "tierwise explain: --body=/no/such/file: No such file or directory\n"


def test_another_server_on_that_port_is_one_sentence(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"--url={url}/elsewhere", "--prompt=x"]) == 0, "a path in the URL is no matter"
    capsys.readouterr()


def test_explain_imports_neither_the_scraper_nor_the_plan_nor_a_server_library(url: str) -> None:
    code = f"""
import sys
from epp.commandline.cli import main
assert main(["explain", "--url={url}", "--prompt=x", "--model=m"]) == 0
assert main(["explain", "--url={url}"]) == 0
heavy = {{"aiohttp", "asyncio", "scorers", "yaml", "epp.config.plan", "epp.scrape.scraper", "epp.kvevents",
"epp.server.core"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
