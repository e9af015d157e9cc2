"""The sender is compared with a naive model of two windows: it exceeds none, loses nothing and keeps the order."""

from __future__ import annotations

from typing import Any

from hyperframe.frame import DataFrame
from hypothesis import given
from hypothesis import strategies as st

from epp.wire.http2.counters import Counters
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import Outbound
from epp.wire.http2.share import Share
from epp.wire.http2.streams import Stream
from epp.wire.http2.windows import ReceiveWindow
from tests.epp.wire.peer import parse

STREAMS = (1, 3, 5)
steps = st.one_of(
    st.tuples(st.just("data"), st.sampled_from(STREAMS), st.integers(0, 300)),
    st.tuples(st.just("finish"), st.sampled_from(STREAMS), st.just(0)),
    st.tuples(st.just("widen"), st.sampled_from(STREAMS), st.integers(1, 200)),
    st.tuples(st.just("connection"), st.just(0), st.integers(1, 400)),
    st.tuples(st.just("initial"), st.just(0), st.integers(0, 200)),
    st.tuples(st.just("pause"), st.just(0), st.integers(0, 1)),
    st.tuples(st.just("take"), st.just(0), st.just(0)),
)


class Model:
    """The windows that the client allows, and the bytes that it should have received."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.share = Share(Limits(), Counters())
        self.out = Outbound(lambda stream: self.close(stream), Limits(), self.share)
        self.out.window, self.out.initial_window = 500, 100
        self.streams = {i: Stream(i, ReceiveWindow(1, 1), None, 0.0) for i in STREAMS}
        self.window, self.initial = 500, 100
        self.windows = dict.fromkeys(STREAMS, 100)
        self.given = dict.fromkeys(STREAMS, b"")
        self.got = dict.fromkeys(STREAMS, b"")
        self.counter = 0

    def close(self, stream: Stream) -> None:
        stream.closed = True
        self.ended.append(stream.id)

    def step(self, what: str, stream_id: int, number: int) -> None:
        out = self.out
        stream = self.streams.get(stream_id)
        match what:
            case "data" if stream and not stream.finishing:
                self.counter += 1
                body = bytes([self.counter % 256]) * number
                self.given[stream_id] += b"prefix" + body
                out.data(stream, b"prefix", body)
            case "finish" if stream and not stream.finishing:
                out.finish(stream, b"\x88")
            case "widen" if stream and not stream.closed:
                self.windows[stream_id] += number
                out.widen_stream(stream, number)
            case "connection":
                self.window += number
                out.widen(number)
            case "initial":
                for i in STREAMS:
                    self.windows[i] += number - self.initial
                self.initial = number
                out.set_initial_window(number, [s for s in self.streams.values() if not s.closed])
            case "pause":
                out.paused = bool(number)
            case "take":
                self.take()

    def take(self) -> None:
        for frame in parse(self.out.take()):
            if isinstance(frame, DataFrame):
                self.window -= len(frame.data)
                self.windows[frame.stream_id] -= len(frame.data)
                self.got[frame.stream_id] += frame.data

    def check(self) -> None:
        """Windows may shrink while frames wait to be taken, so the model is compared with all that was written."""
        for i in STREAMS:
            assert self.given[i].startswith(self.got[i])
        assert self.out.queued_bytes == sum(s.queued_bytes for s in self.streams.values())
        assert self.share.bytes == self.out.queued_bytes


@given(st.lists(steps, max_size=60))
def test_no_window_is_ever_crossed_and_everything_arrives_in_order(script: list[tuple[Any, ...]]) -> None:
    model = Model()
    for step in script:
        model.step(*step)
        model.take()
        assert model.window >= 0
        assert model.window == model.out.window
        for i, stream in model.streams.items():
            assert stream.closed or model.windows[i] == model.out.initial_window + stream.credit
        model.check()
    model.step("pause", 0, 0)
    model.step("connection", 0, 100_000)
    for stream_id in STREAMS:
        model.step("widen", stream_id, 100_000)
        model.step("finish", stream_id, 0)
    model.take()
    assert model.got == model.given
    assert sorted(model.ended) == list(STREAMS)
    assert model.out.queued_bytes == 0
