"""The proxy's own answers are in the form of the client's API and name a remedy."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpConnectionManager
from envoy_data_plane.google.protobuf import Any

from epp.extproc.options import ErrorFormat
from epp.standalone.bootstrap import bootstrap
from epp.standalone.settings import ProxySettings
from tests.e2e.site.background import Background
from tests.epp.standalone.raw import raw
from tests.epp.standalone.stage import Answer, Stage, stage

LIMIT = 1 << 16
ANTHROPIC = {"path": "/v1/messages?beta=true"}


@pytest.fixture(scope="module")
def there(loop: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("local-replies")
    with stage(loop, folder, max_request_bytes=LIMIT, fail_open=False, picker_timeout_s=0.5) as made:
        yield made


def error_of(answer: Answer) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*", "a chat page in a browser may read the sentence"
    error = json.loads(answer.body)["error"]
    assert isinstance(error, dict)
    return error


def test_a_large_body_is_told_the_limit_and_nothing_of_trying_again(there: Stage) -> None:
    answer = there.ask(prompt="x" * 200_000)
    sentence = "the request body is larger than 65,536 bytes, which is --max-request-bytes"
    assert answer.status == 413
    assert error_of(answer) == {"message": sentence, "type": "RequestTooLargeError", "param": None, "code": 413}
    assert "retry-after" not in answer.headers
    for headers in ({"path": "/v1/messages"}, ANTHROPIC, {"path": "/v1/messages/count_tokens"}):
        answer = there.ask({"x-request-id": "r1"}, prompt="x" * 200_000, **headers)
        assert json.loads(answer.body) == {
            "type": "error", "error": {"type": "request_too_large", "message": sentence}, "request_id": "r1",
        }  # fmt: skip


def test_a_picker_that_hangs_is_named(there: Stage) -> None:
    there.picker.silent = True
    try:
        answer = there.ask()
    finally:
        there.picker.silent = False
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert error_of(answer)["message"] == "the picker did not answer in time; try again"
    assert error_of(answer)["code"] == 503


@pytest.fixture
def unreachable(there: Stage) -> Iterator[Stage]:
    """The stage with endpoints of which none listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    there.list_addresses([f"127.0.0.1:{port}"])
    yield there
    there.list_endpoints(there.engines)
    there.until_status(200)


def test_endpoints_that_cannot_be_reached(unreachable: Stage) -> None:
    answer = unreachable.until_status(503)
    assert answer.headers["retry-after"] == "1"
    error = error_of(answer)
    assert str(error["message"]).startswith("no endpoint could be reached: ")
    assert "connection failure" in str(error["message"])
    assert (error["type"], error["code"]) == ("ServiceUnavailableError", 503)
    anthropic = unreachable.ask({"anthropic-version": "2023-06-01"}, method="GET", path="/v1/models")
    assert error_of(anthropic)["type"] == "overloaded_error"
    with grpc.insecure_channel(f"127.0.0.1:{unreachable.proxy.settings.port}") as channel:
        call = channel.unary_unary("/vllm.grpc.engine.VllmEngine/Generate")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"x", timeout=15)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details().startswith("no endpoint could be reached")


def test_no_endpoint_at_all(there: Stage) -> None:
    there.list_endpoints([])
    try:
        answer = there.until_status(503)
        assert error_of(answer)["message"] == "the proxy knows no endpoint that it could send the request to; try again"
        assert answer.headers["retry-after"] == "1"
    finally:
        there.list_endpoints(there.engines)
        there.until_status(200)


def test_an_endpoint_that_dies_before_it_answers(there: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dying:
        there.list_addresses([f"127.0.0.1:{dying.getsockname()[1]}"])
        try:
            connection = there.connect()
            while True:
                connection.request("POST", "/v1/completions", b'{"model": "m", "prompt": "x"}')
                dying.settimeout(1.0)
                try:
                    accepted, _ = dying.accept()
                except TimeoutError:
                    connection.getresponse().read()
                    continue
                with accepted:
                    accepted.recv(1 << 16)
                break
            response = connection.getresponse()
            assert response.status == 503
            message = json.loads(response.read())["error"]["message"]
            assert message.startswith("the endpoint ended the connection before it had answered, ")
            assert response.getheader("retry-after") is None
            connection.close()
        finally:
            there.list_endpoints(there.engines)
            there.until_status(200)


def test_what_envoy_refuses_for_reasons_of_its_own_has_its_word_for_them(there: Stage) -> None:
    with closing(socket.create_connection(("127.0.0.1", there.proxy.settings.port), timeout=15)) as client:
        client.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        answer = client.recv(1 << 16).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    error = json.loads(answer.partition("\r\n\r\n")[2])["error"]
    assert error["message"] == "the proxy refused the request: missing_host_header"
    assert (error["type"], error["code"]) == ("BadRequestError", 400)


def test_headers_that_are_too_large_are_431(there: Stage) -> None:
    answer = there.ask({"x-long": "x" * 100_000})
    assert answer.status == 431
    error = error_of(answer)
    assert error["message"] == "the request's headers are larger than the proxy takes"
    assert (error["type"], error["code"]) == ("RequestTooLargeError", 431)


def test_a_request_whose_headers_do_not_arrive_in_time_is_408(loop: Background, tmp_path: Path) -> None:
    def impatient(settings: ProxySettings) -> Bootstrap:
        made = bootstrap(settings)
        assert made.static_resources is not None
        network_filter = made.static_resources.listeners[0].filter_chains[0].filters[0]
        assert network_filter.typed_config is not None
        manager = network_filter.typed_config.unpack()
        assert isinstance(manager, HttpConnectionManager)
        manager.request_headers_timeout = timedelta(milliseconds=100)
        network_filter.typed_config = Any.pack(manager)
        return made

    with (
        stage(loop, tmp_path, configure=impatient) as there,
        closing(socket.create_connection(("127.0.0.1", there.proxy.settings.port), timeout=15)) as client,
    ):
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n")
        answer = client.recv(1 << 16).decode()
    assert answer.startswith("HTTP/1.1 408 ")
    error = json.loads(answer.partition("\r\n\r\n")[2])["error"]
    assert error["message"] == "the request did not arrive in time"
    assert (error["type"], error["code"]) == ("RequestTimeoutError", 408)


def test_a_grpc_client_reads_envoys_word_as_its_message(there: Stage) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{there.proxy.settings.port}") as channel:
        call = channel.unary_unary("/vllm.grpc.engine.VllmEngine/%00")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"x", timeout=15)
    assert refused.value.details() == "the proxy did not serve the request: path_normalization_failed"


def test_a_picker_that_is_gone_is_named(there: Stage) -> None:
    port = there.picker.port
    there.loop.run(there.picker.stop())
    try:
        answer = there.ask()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["message"] == "the picker cannot be reached; try again"
    finally:
        there.loop.run(there.picker.start(port))
        there.until_status(200)


def test_as_text_the_proxy_answers_in_its_own_words(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path, max_request_bytes=LIMIT, error_format=ErrorFormat.TEXT) as there:
        answer = there.ask(prompt="x" * 200_000)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (413, b"Payload Too Large", "text/plain")
        there.list_endpoints([])
        answer = there.until_status(503)
        assert answer.body.startswith(b"no healthy upstream")
        assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n{}",
        "GET /v1/models HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n",
    ],
)
def test_a_connection_on_which_requests_cannot_be_told_apart_is_closed(there: Stage, request_text: str) -> None:
    served = sum(len(engine.requests) for engine in there.engines)
    answer = raw(there.proxy.settings.port, request_text.encode() + b"GET /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 2" not in answer
    assert sum(len(engine.requests) for engine in there.engines) == served
