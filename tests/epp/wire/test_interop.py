"""Our server with h2 as the client, which reads all that we send strictly."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import h2.settings
from hypothesis import given
from hypothesis import strategies as st

from epp.wire.http2.counters import Counters
from epp.wire.http2.limits import Limits
from epp.wire.session import Session
from tests.epp.wire.peer import ECHO, REQUEST, Echo, message


class Client:
    """An h2 client and a Session, connected without sockets. Bodies wait for the windows."""

    def __init__(self, window: int, limits: Limits) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.seen: list[str] = []
        methods = {ECHO: lambda call: Echo(call, self.seen)}
        self.session = Session(methods, limits, Counters(), "192.0.2.1:5", lambda: None)
        self.answers: dict[int, bytes] = {}
        self.statuses: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.turn()

    def call(self, body: bytes) -> int:
        stream_id = int(self.h2.get_next_available_stream_id())
        self.h2.send_headers(stream_id, REQUEST)
        self.answers[stream_id] = b""
        self.bodies[stream_id] = body
        return stream_id

    def push(self) -> None:
        """Send as much as the windows allow."""
        for stream_id, body in list(self.bodies.items()):
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size, len(body))
            ended = room == len(body)
            if room or ended:
                self.h2.send_data(stream_id, body[:room], end_stream=ended)
            self.bodies[stream_id] = body[room:]
            if ended:
                del self.bodies[stream_id]

    def turn(self) -> None:
        """Pass bytes both ways once."""
        self.session.receive(self.h2.data_to_send(), 0.0)
        out = b""
        while piece := self.session.output(0.0):
            out += piece
        for event in self.h2.receive_data(out):
            match event:
                case h2.events.DataReceived():
                    self.answers[event.stream_id] += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.TrailersReceived():
                    self.statuses[event.stream_id] = dict(event.headers)["grpc-status"]
                case h2.events.ResponseReceived():
                    headers = dict(event.headers)
                    assert headers[":status"] == "200"
                    if "grpc-status" in headers:
                        self.statuses[event.stream_id] = headers["grpc-status"]

    def run(self) -> None:
        for _ in range(5_000):
            if len(self.statuses) == len(self.answers):
                return
            self.push()
            self.turn()
        raise AssertionError("the exchange does not end")


@given(
    st.lists(st.lists(st.integers(0, 5_000), max_size=4), min_size=1, max_size=5),
    st.sampled_from([1_000, 65_535, 1 << 20]),
    st.sampled_from([1_000, 65_535, 1 << 20]),
)
def test_h2_finds_nothing_to_object_to(calls: list[list[int]], theirs: int, ours: int) -> None:
    client = Client(theirs, Limits(stream_window_bytes=ours, connection_window_bytes=65_535))
    sent = {}
    for sizes in calls:
        body = b"".join(message(bytes(size)) for size in sizes)
        sent[client.call(body)] = body
    client.run()
    assert client.answers == sent
    assert set(client.statuses.values()) == {"0"}
    assert not client.session.connection.streams


def test_a_body_larger_than_every_window_makes_the_round_trip() -> None:
    client = Client(10_000, Limits(stream_window_bytes=5_000, connection_window_bytes=65_535))
    body = message(bytes(range(256)) * 4_000)
    stream_id = client.call(body)
    client.run()
    assert client.answers[stream_id] == body
