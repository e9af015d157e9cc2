"""Clients that are with a pod when it ends: one that reads a long answer, and one that keeps its connection."""

from __future__ import annotations

import http.client
import json
import threading
import time
from types import TracebackType

from tests.cluster.load import PATIENCE_S
from tests.cluster.workloads import MODEL

JSON = {"Content-Type": "application/json"}
PAUSE_S = 0.1


class Stream:
    """A streamed answer of ``tokens`` tokens that a thread reads from ``address``."""

    def __init__(self, address: str, tokens: int) -> None:
        self.tokens = tokens
        self.events = 0
        self.last = ""
        """The last event that has come before the engine's word that it was the last, or what went wrong."""
        self._done = False
        self.began, self.ended = time.monotonic(), 0.0
        self._connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._read)
        body = {"model": MODEL, "prompt": "a long story", "max_tokens": tokens, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        self._connection.request("POST", "/v1/completions", json.dumps(body), JSON)
        self._thread.start()

    def has_begun(self) -> None:
        """Wait for the first event. Raises: AssertionError."""
        assert self._first.wait(PATIENCE_S), self.last

    def is_whole(self) -> bool:
        """Wait for the stream's end, and return whether nothing of it is missing."""
        self._thread.join()
        self._connection.close()
        if not self._done:
            return False
        counted: int = json.loads(self.last)["usage"]["completion_tokens"]
        return counted == self.tokens

    def __repr__(self) -> str:
        return f"{self.tokens} tokens, {self.events} events in {self.ended - self.began:.1f} s, at last {self.last}"

    def _read(self) -> None:
        try:
            response = self._connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                text = line.decode().strip()
                if text == "data: [DONE]":
                    self._done = True
                elif text:
                    self.events, self.last = self.events + 1, text.removeprefix("data: ")
                    self._first.set()
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.last = repr(error)
        self.ended = time.monotonic()
        self._first.set()


class KeptConnection:
    """A client whose requests follow one another over one connection, until an answer closes it."""

    def __init__(self, address: str) -> None:
        self.answered, self.connections = 0, 0
        self.lost: list[str] = []
        self._address, self._over = address, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> KeptConnection:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        connection: http.client.HTTPConnection | None = None
        began = time.monotonic()
        while not self._over.wait(PAUSE_S):
            if connection is None:
                connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
                self.connections += 1
            try:
                body = json.dumps({"model": MODEL, "prompt": f"request {self.answered}", "max_tokens": 2})
                connection.request("POST", "/v1/completions", body, JSON)
                response = connection.getresponse()
                text = response.read()
                assert response.status == 200, f"{response.status} {text[:200]!r}"
                self.answered += 1
                closes = response.will_close
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.lost.append(f"{time.monotonic() - began:.1f} s: {error!r}")
                closes = True
            if closes:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()
