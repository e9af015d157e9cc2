"""Publishes KV events over ZeroMQ as vLLM does: numbered batches, the last of which can be replayed.

Source: the protocol of ``ZmqEventPublisher`` in vLLM 0.32.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import msgspec
import zmq

BUFFER = 10_000
"""Batches kept for replay. Source: vLLM's default."""
END = (-1).to_bytes(8, "big", signed=True)


class EventPublisher:
    """A PUB socket for events, and a ROUTER socket that answers replay requests. Owner: the running event loop."""

    def __init__(
        self, host: str, port: int, replay_port: int | None = None, *, topic: str = "", buffer: int = BUFFER
    ) -> None:
        """Port 0 takes a free one. Raises: zmq.ZMQError when a port cannot be bound."""
        self._topic = topic.encode()
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._router: zmq.Socket[bytes] | None = None
        self._loop = asyncio.get_running_loop()
        try:
            self.port = self._bind(self._pub, host, port)
            self.replay_port = 0
            if replay_port is not None:
                self._router = self._context.socket(zmq.ROUTER)
                self.replay_port = self._bind(self._router, host, replay_port)
                self._loop.add_reader(int(self._router.getsockopt(zmq.FD)), self._answer)
        except zmq.ZMQError:
            self.close()
            raise

    def publish(self, events: Sequence[object], rank: int | None = None) -> None:
        """Publish ``events`` as one batch."""
        self.send(msgspec.msgpack.encode([time.time(), events, *([] if rank is None else [rank])]))

    def send(self, payload: bytes, *, lost: bool = False) -> None:
        """Publish one encoded batch; with ``lost``, only keep it for replay, to simulate a loss."""
        number, self._number = self._number, self._number + 1
        self._kept.append((number, payload))
        if not lost:
            self._pub.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
        self._answer()  # the file descriptor signals the first request only, until all are answered

    def close(self) -> None:
        """Close both sockets and free their ports."""
        if self._router is not None:
            self._loop.remove_reader(int(self._router.getsockopt(zmq.FD)))
        self._context.destroy(0)

    @staticmethod
    def _bind(socket: zmq.Socket[bytes], host: str, port: int) -> int:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.bind(f"tcp://{host}:{port or '*'}")
        return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def _answer(self) -> None:
        router = self._router
        while router is not None and int(router.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames = router.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            start = int.from_bytes(frames[2], "big")
            for number, payload in self._kept:
                if number >= start:
                    router.send_multipart([frames[0], b"", self._topic, number.to_bytes(8, "big"), payload])
            router.send_multipart([frames[0], b"", b"", END, b""])
