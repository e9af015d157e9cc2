"""The settings of the proxy: those that flags set, and those that follow when the picker beside it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.extproc.options import ErrorFormat

MIB = 1 << 20


class ResponseMode(Enum):
    """The part of a response that the proxy shows the picker."""

    LEAN = "lean"
    """Nothing; completions come by the access log, and a sample of requests in full."""
    FULL = "full"
    """Everything, of every request."""


class RequestMode(Enum):
    """How a request body is sent to the picker."""

    BUFFERED = "buffered"
    """Once, as a whole; the proxy keeps it, and only the destination comes back."""
    DUPLEX = "duplex"
    """In pieces that the picker sends back, as gateways do, since the endpoint-picker protocol demands it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Everything that the bootstrap depends on. Addresses are IP literals then."""

    host: str = "0.0.0.0"
    port: int = 8081
    """The port that clients connect to; in the flags 0 takes a free one, here and below."""
    admin_port: int = 19000
    """The proxy's own pages, on loopback."""
    picker_port: int = 0
    """The port of the picker's ext-proc and access-log services."""
    endpoints_file: Path = Path("endpoints.json")
    """The file for endpoint discovery; its directory must exist."""
    picker_host: str = "127.0.0.1"
    request_mode: RequestMode = RequestMode.BUFFERED
    response_mode: ResponseMode = ResponseMode.LEAN
    sample_rate: float = 0.01
    """Share of the requests whose responses a lean proxy shows the picker in full, 0 to 1."""
    response_headers: bool = False
    """Whether a lean proxy sends the picker the headers of every response, which it may have to change."""
    fail_open: bool = True
    """Without the picker: serve by round robin (True), or answer 503."""
    picker_timeout_s: float = 10.0
    """A guess: the delay of a request by a hung picker, before it continues without one. The picker may ask for more
    time, message by message, while a request waits in a queue.
    """
    open_paths: tuple[str, ...] = ()
    """Paths of the engines that are open to clients beside those of ``epp.standalone.paths``; ``all`` is every one."""
    max_request_bytes: int = 32 * MIB
    """A larger body gets 413 from the proxy."""
    error_format: ErrorFormat = ErrorFormat.API
    """The form of the proxy's own refusals."""
