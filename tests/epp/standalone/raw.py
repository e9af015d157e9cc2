"""What clients send that no library sends: bytes of one's own over a socket of one's own."""

from __future__ import annotations

import socket


def raw(port: int, sent: bytes) -> bytes:
    """All that comes back for ``sent`` until the proxy ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as client:
        client.sendall(sent)
        received = b""
        while piece := client.recv(65536):
            received += piece
        return received


def status_of(answer: bytes) -> int:
    """The status in the first line of ``answer``."""
    return int(answer.split(b" ", 2)[1])
