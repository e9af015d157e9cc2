"""The address of the API server, and the credentials for requests to it.

In a pod the credentials are files that the kubelet replaces while the pod runs: the token about every hour, the
certificate authority when the cluster's is changed. So both are read again for each request.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from epp.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's credentials. Source: Kubernetes, "Accessing the Kubernetes API from a Pod"."""
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def shown(url: str) -> str:
    """Return ``url`` for an error or a log, without a user and password that it may have."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


class Access(Protocol):
    """One API server and one identity. Owner: the client that was given it."""

    server: str
    """``https://host:port`` without a path, or with the path of a proxy."""
    namespace: str | None
    """The namespace of the identity; None where there is none."""
    tls_name: str | None
    """The name that the server's certificate must have; None for that of ``server``."""
    proxy: str | None
    """The URL of the HTTP proxy through which the server is reached; None to connect to it directly."""

    async def headers(self, *, renew: bool) -> Mapping[str, str]:
        """Return the headers that prove the identity; with ``renew`` the cached credentials are not used.

        Raises: ConfigError when the credentials cannot be read.
        """

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of new connections, a new object after the authority has changed; None for HTTP.

        Raises: ConfigError when the certificate authority cannot be read.
        """


class InCluster:
    """The access of a pod, from the files and variables that every pod has."""

    tls_name: str | None = None
    proxy: str | None = None

    def __init__(self, environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> None:
        """Raises: ConfigError outside a pod, or where the pod has no token mounted."""
        host, port = environ.get(HOST, ""), environ.get(PORT) or "443"
        if not host:
            raise ConfigError(
                f"{HOST} is not set, so this is not a pod; outside of one give --kubeconfig or --endpoint"
            )
        self.server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token, self._authority = folder / "token", folder / "ca.crt"
        self._trusted: tuple[str, ssl.SSLContext] | None = None
        _read(self._token)
        namespace = folder / "namespace"
        self.namespace = (namespace.read_text().strip() or None) if namespace.is_file() else None

    async def headers(self, *, renew: bool) -> Mapping[str, str]:  # noqa: ARG002 (nothing is kept)
        """Return the token as it is in its file now: reading it costs microseconds, and requests are few."""
        token = _read(self._token)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"{self._token} has characters that no token has; a pod's service account token is one word"
            )
        return {"Authorization": f"Bearer {token}"}

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts the authority in its file now: the same one until the file changes."""
        authority = _read(self._authority)
        if self._trusted is None or self._trusted[0] != authority:
            try:
                self._trusted = authority, ssl.create_default_context(cadata=authority)
            except (ssl.SSLError, TypeError) as error:  # TypeError: it is not ASCII
                raise ConfigError(f"{self._authority} has no certificate that can be read: {error}") from error
        return self._trusted[1]


def _read(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{path}: {reason}; a pod gets it unless automountServiceAccountToken is false") from error
    if not text:
        raise ConfigError(f"{path} is empty; a pod's service account token and CA stand there")
    return text
