"""The bounds of the chart's Envoy: their defaults, and that a real Envoy accepts them and refuses what is beyond."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from epp.standalone.binary import find_envoy
from tests.charts.rendering import Object, notes, pool_values, refusal, render

MIB = 1 << 20
DEADLINE_S = 20


def values(own: Object, **proxy: object) -> Object:
    return {**pool_values("router", **({"proxy": proxy} if proxy else {})), "tierwise": {"envoy": own}}


def limits(given: Object) -> tuple[int, int | None]:
    """Return how many connections Envoy takes, and how many bytes its heap may have."""
    monitors = {
        each["name"].rpartition(".")[2]: each["typed_config"]
        for each in render("standalone", given).envoy["overload_manager"]["resource_monitors"]
    }
    connections = monitors["global_downstream_max_connections"]["max_active_downstream_connections"]
    return connections, monitors.get("fixed_heap", {}).get("max_heap_size_bytes")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (values({}), (58982, 4096 * MIB * 9 // 10)),
        (values({}, resources={"limits": {"memory": "1Gi"}}), (14745, 1024 * MIB * 9 // 10)),
        (values({}, resources={"limits": {"memory": "2e9"}}), (27465, 1_800_000_000)),
        (values({}, resources={"limits": {"memory": 2_000_000_000}}), (27465, 1_800_000_000)),
        (values({}, resources={"requests": {"memory": "1Gi"}}), (65536, None)),
        (values({"maxMemory": "512Mi"}), (8192, 512 * MIB)),
        (values({"maxMemory": "512Mi", "maxConnections": 100}), (100, 512 * MIB)),
    ],
)
def test_the_bounds_follow_from_the_memory_limit_of_the_container(given: Object, expected: Object) -> None:
    assert limits(given) == expected


def test_notes_tell_of_an_envoy_without_a_memory_limit(tmp_path: Path) -> None:
    assert "no memory limit" in notes("standalone", values({}, resources={"requests": {"cpu": "1"}}), tmp_path)


def test_no_connection_at_all_is_refused() -> None:
    assert "maxConnections" in refusal("standalone", values({"maxConnections": 0}))


def free_ports() -> list[int]:
    with ExitStack() as open_now:
        sockets = [open_now.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def envoy(own: Object, folder: Path) -> Iterator[tuple[int, int]]:
    """Run the Envoy of a release on free ports; yield those for clients and for the readiness probe."""
    clients, ready, admin = free_ports()
    text = json.dumps(render("standalone", values(own)).envoy)
    for port, taken in ((8081, clients), (19001, ready), (19000, admin)):
        text = text.replace(f'"port_value": {port}', f'"port_value": {taken}')
    (folder / "envoy.json").write_text(text)
    command = [str(find_envoy(None)), "-c", str(folder / "envoy.json"), "--concurrency", "1", "--disable-hot-restart"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            until_ready(ready, process)
            yield clients, ready
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "Envoy has ended"
        try:
            if answer(port, "/ready")[0] == 200:
                return
        except OSError:
            pass
    raise AssertionError("Envoy is not ready")


def answer(port: int, path: str) -> tuple[int, Any]:
    """Return the status and the body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def served(connection: socket.socket) -> bool:
    """Return whether a request on an open connection has an answer; Envoy closes those beyond its limit."""
    try:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        return connection.recv(4096).startswith(b"HTTP/1.1 404")
    except ConnectionError:
        return False


def test_envoy_refuses_connections_beyond_the_limit_and_stays_ready(tmp_path: Path) -> None:
    with envoy({"maxConnections": 3}, tmp_path) as (clients, ready), ExitStack() as held:
        made = [held.enter_context(socket.create_connection(("127.0.0.1", clients), DEADLINE_S)) for _ in range(3)]
        assert [served(each) for each in made] == [True] * 3
        beyond = held.enter_context(socket.create_connection(("127.0.0.1", clients), DEADLINE_S))
        assert not served(beyond)
        assert answer(ready, "/ready")[0] == 200
        made[0].close()
        deadline = time.monotonic() + DEADLINE_S
        while not served(held.enter_context(socket.create_connection(("127.0.0.1", clients), DEADLINE_S))):
            assert time.monotonic() < deadline, "no connection takes the place of one that has ended"


def test_envoy_refuses_requests_in_the_form_of_the_api_while_its_heap_is_full(tmp_path: Path) -> None:
    with envoy({"maxMemory": "1Mi", "maxConnections": 10}, tmp_path) as (clients, ready):
        deadline = time.monotonic() + DEADLINE_S
        while (refused := answer(clients, "/v1/models"))[0] != 503 or b"overload" not in refused[1]:
            assert time.monotonic() < deadline, refused
        assert json.loads(refused[1])["error"]["type"] == "ServiceUnavailableError"
        assert b"envoy_overload" in answer(ready, "/stats/prometheus")[1]
