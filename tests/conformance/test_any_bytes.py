"""Whatever a client sends, the server answers the next PING or ends the connection, and others never notice."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.client import Address, Client
from tests.conformance.fields import STREAM, UNARY, block, call, indexed, message, remembered, table_size
from tests.conformance.frames import PREFACE, Setting, data, headers, ping, raw
from tests.conformance.frames import settings as settings_frame
from tests.conformance.grpc_calls import ask

STREAMS = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 9, 2**31 - 1])
BLOCKS = st.sampled_from(
    [
        block(call()),
        block(call(path=STREAM)),
        block(call((b"connection", b"close"))),
        block(call()) + remembered(b"kept", b"1"),
        block(call()) + indexed(62),
        block([(b"checksum", b"0")]),
        table_size(64),
        b"",
        b"\x80",
    ]
)
CONTENTS = st.sampled_from([b"", message(b"ping"), message(b"ping")[:6], message(b"a") * 9, bytes(400)])
NUMBERS = st.sampled_from([0, 1, 5, 65_535, 2**31 - 1, 2**31, 2**32 - 1])
FLAGS = st.sampled_from([0, 1, 4, 5, 5, 8, 0x20, 0x2D, 0xFF])
PAYLOADS = st.one_of(BLOCKS, CONTENTS, NUMBERS.map(lambda n: n.to_bytes(4)), st.binary(max_size=20))
FRAMES = st.one_of(
    st.builds(raw, st.integers(0, 11), FLAGS, STREAMS, PAYLOADS),
    st.builds(headers, STREAMS, BLOCKS, end=st.booleans(), complete=st.booleans()),
    st.builds(data, STREAMS, CONTENTS, end=st.booleans(), padding=st.sampled_from([None, 0, 9])),
    st.builds(raw, st.just(3), st.just(0), STREAMS, NUMBERS.map(lambda n: n.to_bytes(4))),
    st.builds(raw, st.just(8), st.just(0), STREAMS, NUMBERS.map(lambda n: n.to_bytes(4))),
    st.builds(lambda key, value: settings_frame((key, value)), st.integers(0, 9), NUMBERS),
)


def serves(address: Address) -> bool:
    """Whether a new client has its call answered."""
    with Client(address) as other:
        other.handshake()
        return ask(other).status == 0


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(FRAMES, max_size=12), pieces_bytes=st.sampled_from([0, 1, 10]))
def test_any_frames_are_answered_or_refused_in_order(address: Address, frames: list[bytes], pieces_bytes: int) -> None:
    with Client(address) as client:
        client.handshake()
        client.received.decoder.max_allowed_table_size = 1 << 32  # the frames may announce anything
        client.received.max_frame_bytes = 1 << 24
        client.received.grant(0, 1 << 40)
        client.received.initial_grant_bytes = 1 << 40
        client.send(*frames)
        client.flush(pieces_bytes)
        client.settle()
    assert serves(address)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=200))
def test_noise_after_the_preface_is_survived(address: Address, noise: bytes) -> None:
    with Client(address) as client:
        client.handshake()
        client.send(noise, ping(b"after it") * 40)  # enough to complete a frame that the noise began
        client.flush()
    assert serves(address)


def test_a_connection_may_break_at_any_byte(address: Address) -> None:
    whole = PREFACE + settings_frame((Setting.ENABLE_PUSH, 0)) + headers(1, block(call(path=UNARY)))
    whole += data(1, message(b"ping"), end=True)
    for length in range(len(whole)):
        with Client(address) as client:
            client.send(whole[:length])
            client.flush()
    assert serves(address)
