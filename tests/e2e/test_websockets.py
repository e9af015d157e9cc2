"""A WebSocket (vLLM's ``/v1/realtime``) passes, counts as one request while it is open, and is not read."""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path

import aiohttp
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from epp.decision import Cause
from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import PATIENCE_S, Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK, Router, behind_gateway, router
from tests.e2e.test_draining import serving
from tests.e2e.test_tls import manifest_envoy, picker_is_known

pytestmark = pytest.mark.e2e


async def talk(port: int, said: list[str], path: str = "/v1/realtime?model=m") -> list[str]:
    """Send each of ``said``, wait for each answer, and return the answers; the last must end the conversation."""
    heard = []
    async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{LOOPBACK}:{port}{path}") as client:
        heard.append(await client.receive_str())
        for text in said:
            await client.send_str(text)
            message = await client.receive()
            heard.append(message.data if message.type is aiohttp.WSMsgType.TEXT else message.type.name)
    return heard


def a_conversation_is_one_request(running: Router, engines: list[Engine]) -> None:
    """Check that a conversation is counted once, passes both ways, and is uncounted when either side closes it."""
    ledger, loop = running.picker.ledger, running.loop
    completed = ledger.released.get(Cause.COMPLETED, 0)
    began, go_on = loop.call(asyncio.Event), loop.call(asyncio.Event)

    async def held() -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{LOOPBACK}:{running.port}/v1/realtime") as client,
        ):
            who = await client.receive_str()
            began.set()
            await go_on.wait()
            await client.send_str("still there?")
            assert await client.receive_str() == "still there?"
            return who

    client = asyncio.run_coroutine_threadsafe(held(), loop.loop)
    loop.until(began.is_set, "the WebSocket is open")
    assert len(ledger) == 1
    assert sum(candidate.in_flight for candidate in running.picker.pool.candidates()) == 1
    loop.call(go_on.set)
    assert client.result(PATIENCE_S) in {engine.address for engine in engines}
    running.settle()
    assert sum(ledger.released.values()) == ledger.released[Cause.COMPLETED] + ledger.released[Cause.DISCONNECTED]
    heard = loop.run(talk(running.port, ["a", "x" * 100_000, "bye"]))
    assert heard[1:] == ["a", "x" * 100_000, "CLOSE"]
    running.settle()
    assert ledger.released[Cause.COMPLETED] > completed


@pytest.mark.parametrize("mode", list(ResponseMode), ids=lambda mode: str(mode.value))
def test_a_websocket_is_one_request_of_the_router(loop: Background, engines: list[Engine], mode: ResponseMode) -> None:
    with router(loop, engines, response_mode=mode, sample_rate=1.0) as running:
        a_conversation_is_one_request(running, engines)


def test_a_websocket_is_one_request_behind_a_gateway(loop: Background, engines: list[Engine], tmp_path: Path) -> None:
    with behind_gateway(loop, engines, tmp_path) as running:
        a_conversation_is_one_request(running, engines)


def test_an_engine_without_websockets_answers_for_itself(routed: Router) -> None:
    async def refused() -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await talk(routed.port, [], "/v1/other")
        return error.value.status

    assert routed.loop.run(refused()) == 404
    routed.settle()


def test_a_websocket_at_a_closed_path_is_refused(routed: Router) -> None:
    async def refused() -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await talk(routed.port, [], "/metrics")
        return error.value.status

    assert routed.loop.run(refused()) in (403, 404)


def test_a_post_that_asks_for_an_upgrade_is_refused_at_once(routed: Router) -> None:
    asked = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with socket.create_connection((LOOPBACK, routed.port), timeout=15) as client:
        client.sendall(asked)
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_http_2_opens_a_websocket_by_extended_connect(routed: Router, engines: list[Engine]) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    status, received = "", b""
    frame = bytes([0x81, 0x80 | 2, 0, 0, 0, 0]) + b"hi"  # a text message, masked with zeros
    with socket.create_connection((LOOPBACK, routed.port), timeout=15) as client:
        client.sendall(connection.data_to_send())
        while not received.endswith(b"hi"):
            events = connection.receive_data(client.recv(65536))
            for event in events:
                if isinstance(event, h2.events.RemoteSettingsChanged):
                    assert event.changed_settings[h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL].new_value == 1
                    connection.send_headers(
                        1,
                        [
                            (":method", "CONNECT"),
                            (":protocol", "websocket"),
                            (":scheme", "http"),
                            (":path", "/v1/realtime"),
                            (":authority", "x"),
                            ("sec-websocket-version", "13"),
                            ("sec-websocket-key", base64.b64encode(bytes(16)).decode()),
                        ],
                    )
                elif isinstance(event, h2.events.ResponseReceived):
                    status = dict(event.headers)[":status"]
                    connection.send_data(1, frame)
                elif isinstance(event, h2.events.DataReceived):
                    received += event.data
            client.sendall(connection.data_to_send())
    assert status == "200"
    assert received[2:-4].decode() in {engine.address for engine in engines}
    routed.settle()


def test_the_manifest_lets_websockets_and_http_1_0_pass(
    loop: Background, engines: list[Engine], tmp_path: Path
) -> None:
    given = ["--secure-serving=true", f"--endpoint={engines[0].address}"]
    with serving(*given) as (picker, _), manifest_envoy(tmp_path, picker.grpc_port) as port:
        picker.running.until(lambda: picker_is_known(port))
        assert loop.run(talk(port, ["a", "bye"])) == [engines[0].address, "a", "CLOSE"]
        with socket.create_connection((LOOPBACK, port), timeout=15) as client:
            client.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.0 200 ")
