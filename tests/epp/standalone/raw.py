"""Sends bytes that no HTTP library would send, over a plain socket."""

from __future__ import annotations

import socket


def raw(port: int, sent: bytes) -> bytes:
    """Send ``sent`` and return everything that the proxy sends until it ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as client:
        client.sendall(sent)
        received = b""
        while piece := client.recv(65536):
            received += piece
        return received


def status_of(answer: bytes) -> int:
    """Return the status in the first line of ``answer``."""
    return int(answer.split(b" ", 2)[1])
