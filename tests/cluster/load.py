"""Requests without a break, and what became of each."""

from __future__ import annotations

import http.client
import json
import threading
import time
from types import TracebackType

from tests.cluster.workloads import MODEL

PAUSE_S = 0.02
PATIENCE_S = 30.0


class Load:
    """Threads that complete prompts at ``address``, each request once, from ``with`` to its end."""

    def __init__(self, address: str, threads: int = 4) -> None:
        self._address = address
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.served = 0
        self.lost: list[tuple[float, str]] = []
        """When, by the monotonic clock, and how: a request without a whole answer of status 200."""
        self.last = time.monotonic()
        """When the last request was served."""
        self.longest_pause_s = 0.0
        """The longest time between two requests that were served."""
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def serves(self, requests: int = 20, within_s: float = 30.0) -> None:
        """Wait until further requests were served. Raises: AssertionError."""
        wanted, deadline = self.served + requests, time.monotonic() + within_s
        while self.served < wanted:
            assert time.monotonic() < deadline, f"{wanted - self.served} of {requests} are missing: {self.lost[-3:]}"
            time.sleep(0.02)

    def lost_outside(self, *windows: tuple[float, float]) -> list[tuple[float, str]]:
        """Return what was lost outside of spans of time in which losses cannot be avoided."""
        return [one for one in self.lost if not any(begin <= one[0] <= end for begin, end in windows)]

    def _work(self, thread: int) -> None:
        number = 0
        while not self._ended.wait(PAUSE_S):
            number += 1
            try:
                self._complete(f"thread {thread}, request {number}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                with self._lock:
                    self.lost.append((time.monotonic(), repr(error)))
            else:
                with self._lock:
                    now = time.monotonic()
                    self.longest_pause_s = max(self.longest_pause_s, now - self.last if self.served else 0.0)
                    self.served, self.last = self.served + 1, now

    def _complete(self, prompt: str) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 3})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise ValueError(f"{response.status} {text.decode(errors='replace')[:200]}")
            json.loads(text)
        finally:
            connection.close()
