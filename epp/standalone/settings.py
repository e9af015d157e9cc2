"""What a person can choose about the proxy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.server.options import ErrorFormat, ResponseMode

MIB = 1 << 20


class RequestMode(Enum):
    """How a request body travels to the picker."""

    BUFFERED = "buffered"
    """Once, whole; the proxy keeps it and only the destination comes back."""
    DUPLEX = "duplex"
    """In pieces that the picker sends back: what gateways do, and what the endpoint-picker protocol demands of them."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Everything that the bootstrap is made of. Addresses are IP literals."""

    port: int
    """Where clients connect."""
    picker_port: int
    """Where the picker's ext-proc and access-log services listen."""
    endpoints_file: Path
    """Endpoint discovery; the directory must exist."""
    admin_port: int
    """The proxy's own pages, on loopback."""
    host: str = "0.0.0.0"
    picker_host: str = "127.0.0.1"
    request_mode: RequestMode = RequestMode.BUFFERED
    response_mode: ResponseMode = ResponseMode.LEAN
    sample_rate: float = 0.01
    """Share of the requests that a lean proxy processes in full."""
    response_headers: bool = False
    """Whether a lean proxy sends the picker the headers of every response: it may have something to change there."""
    fail_open: bool = True
    """Without the picker: serve by round robin (True), or answer 503."""
    picker_timeout_s: float = 10.0
    """A guess: what a hung picker costs a request before it goes on without one. The picker may ask for more, message
    by message, while a request waits for its turn."""
    open_paths: tuple[str, ...] = ()
    """Paths of the engines that are open to clients beside those of ``epp.standalone.paths``; ``all`` is every one."""
    max_request_bytes: int = 32 * MIB
    """A larger body gets 413 from the proxy."""
    error_format: ErrorFormat = ErrorFormat.API
    """How the proxy words its own refusals."""
