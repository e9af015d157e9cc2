"""gRPC health: the bytes by hand, and a real client on both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from epp.server.health import EXT_PROC, LIVENESS, MAX_NAME_BYTES, READINESS, SERVICE, Health
from epp.wire.aio import GrpcioServer
from epp.wire.server import WireServer
from epp.wire.service import Methods, Status

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass
class Call:
    """A call that records the answers of its handler."""

    metadata: Sequence[tuple[str, str]] = ()
    peer: str = "test"
    sent: list[bytes] = field(default_factory=list)
    finished: list[Status] = field(default_factory=list)

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        self.finished.append(status)


def ask(methods: Methods, name: str, *messages: bytes) -> Call:
    call = Call()
    handler = methods[SERVICE + name](call)
    for message in messages:
        handler.received(message)
    if not call.finished:
        handler.half_closed()
    return call


def check(health: Health, service: str) -> int:
    call = ask(health.methods(), "Check", health_pb2.HealthCheckRequest(service=service).SerializeToString())
    assert call.finished == [Status.OK]
    return int(health_pb2.HealthCheckResponse.FromString(call.sent[0]).status)


SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.parametrize("service", ["", READINESS, EXT_PROC, "inference-extension", "whatever", "é"])
def test_without_an_election_any_service_name_is_serving_while_ready(service: str) -> None:
    ready = [True]
    health = Health(lambda: ready[0])
    assert check(health, service) == SERVING
    ready[0] = False
    assert check(health, service) == NOT_SERVING


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("chosen", [None, lambda: True, lambda: False])
@pytest.mark.parametrize("draining", [True, False])
def test_what_is_missing_and_a_drain_never_end_the_liveness(
    ready: bool, chosen: Callable[[], bool] | None, draining: bool
) -> None:
    health = Health(lambda: ready, chosen)
    if draining:
        health.drain()
    assert check(health, LIVENESS) == SERVING


def test_no_request_should_be_sent_to_a_picker_once_it_drains() -> None:
    health = Health(lambda: True)
    health.drain()
    assert not health.serving
    assert check(health, "readiness") == NOT_SERVING


@pytest.mark.parametrize(("ready", "chosen", "readiness"), [
    (True, True, SERVING), (True, False, NOT_SERVING), (False, True, NOT_SERVING), (False, False, NOT_SERVING),
])  # fmt: skip
def test_with_an_election_the_chosen_picker_is_ready_and_all_are_alive(
    ready: bool, chosen: bool, readiness: int
) -> None:
    health = Health(lambda: ready, lambda: chosen)
    assert [check(health, name) for name in ("", READINESS, EXT_PROC)] == [readiness] * 3
    assert check(health, LIVENESS) == SERVING
    assert [check(health, name) for name in ("inference-extension", "whatever")] == [SERVICE_UNKNOWN] * 2
    assert listed(health) == {LIVENESS: SERVING, READINESS: readiness, EXT_PROC: readiness}


def test_with_an_election_a_picker_that_drains_is_alive_and_not_ready() -> None:
    health = Health(lambda: True, lambda: True)
    health.drain()
    assert not health.able
    assert listed(health) == {LIVENESS: SERVING, READINESS: NOT_SERVING, EXT_PROC: NOT_SERVING}


def test_without_an_election_the_list_has_the_name_that_proxies_use() -> None:
    assert listed(Health(lambda: True)) == {EXT_PROC: SERVING}


def listed(health: Health) -> dict[str, int]:
    call = ask(health.methods(), "List", b"")
    return {k: v.status for k, v in health_pb2.HealthListResponse.FromString(call.sent[0]).statuses.items()}


@pytest.mark.parametrize("messages", [(), (b"\xff\xff",), (b"", b""), (b"\n" + b"x" * MAX_NAME_BYTES,)])
def test_what_is_no_request_is_refused_once(messages: tuple[bytes, ...]) -> None:
    call = ask(Health(lambda: True).methods(), "Check", *messages)
    assert (call.sent, call.finished) == ([], [Status.INVALID_ARGUMENT])


@pytest.mark.parametrize("transport", [WireServer, GrpcioServer])
def test_a_client_asks_over_either_transport(transport: type[WireServer] | type[GrpcioServer]) -> None:
    async def scenario() -> None:
        server = transport(Health(lambda: True).methods())
        port = await server.start("127.0.0.1", 0)
        try:
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                client = health_pb2_grpc.HealthStub(channel)
                request = health_pb2.HealthCheckRequest(service="readiness")
                assert (await client.Check(request)).status == SERVING
                with pytest.raises(aio.AioRpcError) as refused:
                    async for _ in client.Watch(request):
                        pass
                assert refused.value.code() is StatusCode.UNIMPLEMENTED
        finally:
            await server.stop()

    asyncio.run(scenario())
