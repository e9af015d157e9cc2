"""The options of encrypted ports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How the ext-proc port is encrypted."""

    cert_path: Path | None = None
    """Folder with ``tls.crt`` and ``tls.key``; None makes a self-signed certificate at start."""
    min_version: str = "VersionTLS12"
    """``VersionTLS12`` or ``VersionTLS13``."""
    cipher_suites: tuple[str, ...] = ()
    """IANA names of TLS 1.2 suites in order of preference; empty leaves the choice to the library."""
    reload: bool = False
    """Whether the files are followed (``--enable-cert-reload``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTlsOptions:
    """How the metrics port is encrypted, where it is."""

    cert_dir: Path
    """Folder with ``tls.crt`` and ``tls.key``."""
    client_ca_file: Path | None = None
    """The authorities one of which must have signed a client's certificate; None accepts every client."""
    tls: TlsOptions = TlsOptions()
    """The options of the ext-proc port, whose lowest version, suites and reloading hold for both."""
