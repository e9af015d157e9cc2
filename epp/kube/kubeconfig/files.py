"""The API server and the identity of a kubeconfig: tokens, client certificates and exec plugins.

The files are read, and plugins are run, by a process of its own (``epp.kube.kubeconfig.reader``) that has no terminal
and a deadline: a plugin cannot stop the picker, and the library that knows kubeconfigs is never in its memory.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from epp.errors import ConfigError
from epp.kube.access import shown

PLUGIN_S = 20.0
"""The longest that reading the files and running a plugin may take. A guess; a client waits for 30 s."""
LEAST_S = 10.0
"""The files are read, and a plugin is run, at most this often, unless a file has changed. A guess."""
EARLY_S = 60.0
"""How long before its end a credential is replaced, so that no request carries one that has just ended. A guess."""
LIBRARY = "kubernetes_asyncio"

log = logging.getLogger(__name__)


class Reading(msgspec.Struct, frozen=True):
    """What kubeconfig files say of the chosen context. Paths are absolute."""

    refused: str = ""
    """Why the files cannot be used; empty if they can."""
    failed: str = ""
    """Why there are no credentials now; empty if there are, or if none were asked for."""
    server: str = ""
    namespace: str | None = None
    plugin: str = ""
    """The command of the exec plugin; empty if the user has none."""
    authorization: str | None = None
    """The value of the header, which is secret."""
    expires_at: float | None = None
    """When the plugin's credential ends, in seconds since the epoch; None if it does not say."""
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    tls_name: str | None = None
    """The name that the server's certificate must have; None for that of the URL."""
    proxy: str | None = None
    followed: tuple[str, ...] = ()
    """The files beside the kubeconfigs that the reading depends on."""


class Kubeconfig:
    """An ``Access`` by kubeconfig files, which are followed. Owner: the event loop.

    A change of the server's URL takes a restart, and so does that of ``tls_name`` and ``proxy``.
    """

    def __init__(
        self,
        files: Sequence[str],
        reading: Reading,
        *,
        plugin_s: float = PLUGIN_S,
        least_s: float = LEAST_S,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``reading`` is that of the cluster alone. ``now`` gives seconds since the epoch, ``clock`` monotonic ones."""
        self.server, self.namespace = reading.server, reading.namespace
        self.tls_name, self.proxy = reading.tls_name, reading.proxy
        self.runs = 0
        """How often the files were read for credentials."""
        self._files = tuple(files)
        self._plugin_s, self._least_s = plugin_s, least_s
        self._now, self._clock = now, clock
        self._reading = reading
        self._trusted: ssl.SSLContext | None = None
        self._error: ConfigError | None = None
        self._read_at: float | None = None
        self._stamps: tuple[object, ...] = ()
        self._one_at_a_time = asyncio.Lock()

    async def headers(self, *, renew: bool) -> Mapping[str, str]:
        """Return the header with the token; none for a client certificate.

        The files are read again when one of them has changed, when the credential is about to end, and to renew it.
        Raises: ConfigError when the files cannot be used any more, or the plugin failed.
        """
        async with self._one_at_a_time:  # requests at the same time share one run of a plugin
            if self._is_due(renew=renew):
                await self._read()
        if self._error is not None:
            raise ConfigError(str(self._error)) from self._error
        authorization = self._reading.authorization
        return {} if authorization is None else {"Authorization": authorization}

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of the last reading; None for HTTP."""
        return self._trusted

    def _is_due(self, *, renew: bool) -> bool:
        if self._read_at is None or self._stamps != _stamps(self._files, self._reading):
            return True
        if self._clock() - self._read_at < self._least_s:
            return False
        ends = self._reading.expires_at
        return renew or self._error is not None or (ends is not None and self._now() >= ends - EARLY_S)

    async def _read(self) -> None:
        self.runs += 1
        self._stamps = _stamps(self._files, self._reading)
        try:
            with tempfile.TemporaryDirectory(prefix="tierwise-") as folder:
                reading = await _run(self._files, folder, self._reading.plugin, self._plugin_s, credentials=True)
                self._stamps = _stamps(self._files, reading)
                trusted = await asyncio.to_thread(context, reading)
            self._reading, self._trusted, self._error = reading, trusted, None
        except ConfigError as error:
            self._error = error
        self._read_at = self._clock()


async def open_kubeconfig(files: Sequence[str], *, plugin_s: float = PLUGIN_S) -> Kubeconfig:
    """Return the access of kubeconfig files, before any plugin has run.

    Raises: ConfigError if a package is missing, or the files cannot be used.
    """
    if importlib.util.find_spec(LIBRARY) is None:
        raise ConfigError(
            f"a kubeconfig: the package {LIBRARY} is missing; pip install '.[k8s]' in a clone of Tierwise"
        )
    with tempfile.TemporaryDirectory(prefix="tierwise-") as folder:
        reading = await _run(files, folder, "", plugin_s, credentials=False)
        await asyncio.to_thread(context, reading)
    log.info("the API server is %s, by %s", shown(reading.server), ", ".join(files))
    if not reading.verify:
        log.warning(
            "insecure-skip-tls-verify: anybody between the picker and %s can read its token", shown(reading.server)
        )
    return Kubeconfig(files, reading, plugin_s=plugin_s)


async def _run(files: Sequence[str], folder: str, plugin: str, limit_s: float, *, credentials: bool) -> Reading:
    """Return what the reader prints. Raises: ConfigError if it refuses, fails, or is not done in time."""
    what = "credentials" if credentials else "cluster"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "epp.kube.kubeconfig.reader", what, folder, *files,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # without a terminal that a plugin could open, and a group that ends as a whole
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit_s):
            out, errors = await process.communicate()
    except TimeoutError as error:
        subject = f"the exec plugin {plugin!r}" if plugin else f"reading {', '.join(files)}"
        raise ConfigError(
            f"{subject} did not end within {limit_s:g} s; run it by hand: it may wait for a terminal or the network"
        ) from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        reading = msgspec.json.decode(out, type=Reading)
    except msgspec.DecodeError as error:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing was printed"]
        raise ConfigError(f"{', '.join(files)} cannot be read: {last[0][:200]}") from error
    return reading


def context(reading: Reading) -> ssl.SSLContext | None:
    """Return the TLS context of a reading, whose files must still be there; None for HTTP.

    Raises: ConfigError for a reading that no request can be made with.
    """
    _check(reading)
    return None if reading.server.startswith("http://") else _trusting(reading)


def _check(reading: Reading) -> None:
    for reason in (reading.refused, reading.failed):
        if reason:
            raise ConfigError(reason)
    if not reading.server.startswith(("https://", "http://")):
        raise ConfigError(f"the kubeconfig's server is {shown(reading.server)!r}, which is not a URL with https://")
    if "@" in reading.server.split("/")[2]:
        raise ConfigError(f"the kubeconfig's server is {shown(reading.server)!r} with a user in it; give it in users")
    if reading.proxy is not None and not reading.proxy.startswith("http://"):
        raise ConfigError(
            f"the kubeconfig's proxy-url is {shown(reading.proxy)!r}; only proxies with http:// are supported"
        )
    if reading.certificate and not reading.key:
        raise ConfigError("the kubeconfig has a client certificate without its key; add client-key")
    token = reading.authorization
    if token is not None and not (token.isascii() and token.isprintable() and token.partition(" ")[2].strip()):
        where = f"the exec plugin {reading.plugin!r} printed" if reading.plugin else "the kubeconfig has"
        raise ConfigError(f"{where} a token that is empty or has characters that no token has")


def _trusting(reading: Reading) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=reading.authority)
    except OSError as error:  # of which SSLError is one
        raise ConfigError(f"the kubeconfig's certificate authority cannot be read: {error}") from error
    if not reading.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if reading.certificate:
        try:
            made.load_cert_chain(
                reading.certificate, reading.key, password=""
            )  # "" fails, None would ask on the terminal
        except (OSError, ValueError) as error:
            raise ConfigError(f"the kubeconfig's client certificate or its key cannot be read: {error}") from error
    return made


def _stamps(files: Sequence[str], reading: Reading) -> tuple[object, ...]:
    """Return what changes when one of the files does."""
    stamps = list[object]()
    for file in (*files, *reading.followed):
        try:
            status = Path(file).stat()
            stamps.append((file, status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            stamps.append((file, None))
    return tuple(stamps)
