"""A picker made of the real parts, for the real proxy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from epp import extproc
from epp.accesslog import AccessLog
from epp.config.build import build
from epp.director import Director
from epp.exchange import ExchangeSettings
from epp.ledger import Ledger
from epp.options import ResponseMode, StandaloneOptions, Transport
from epp.pool import Endpoint, Pool
from epp.resolve import resolve
from epp.telemetry import Telemetry
from epp.wire.aio import GrpcioServer
from epp.wire.limits import Limits
from epp.wire.server import WireServer

LOOPBACK = "127.0.0.1"
SLACK_BYTES = 1 << 16


class Picker:
    def __init__(self, options: StandaloneOptions) -> None:
        self.pool = Pool(options.pool_name)
        self.ledger = Ledger(self.pool)
        self.telemetry = Telemetry()
        plan = build(picks=2)
        director = Director(plan.parser, plan.profile, self.pool, self.ledger, self.telemetry)
        if plan.prefix_cache is not None:
            self.pool.listeners.append(plan.prefix_cache)
        self.log = AccessLog(director)
        settings = ExchangeSettings(
            access_log=options.response_mode is ResponseMode.LEAN,
            clear_route_cache=False,
            max_request_bytes=options.max_request_bytes,
        )
        methods = {**extproc.methods(director, settings), **self.log.methods()}
        limits = Limits(max_receive_message_bytes=options.max_request_bytes + SLACK_BYTES)
        kind = WireServer if options.transport is Transport.WIRE else GrpcioServer
        self.server: WireServer | GrpcioServer = kind(methods, limits=limits)
        self.grpc_port = 0

    async def stop(self, drain_timeout_s: float) -> None:
        await self.server.drain(drain_timeout_s)


def starts(made: list[Picker]) -> Callable[[StandaloneOptions], Awaitable[Picker]]:
    async def start(options: StandaloneOptions) -> Picker:
        picker = Picker(options)
        picker.pool.replace([Endpoint(address) for address in await resolve(options.endpoints)])
        picker.grpc_port = await picker.server.start(LOOPBACK, options.grpc_port)
        made.append(picker)
        return picker

    return start
