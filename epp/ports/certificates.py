"""The certificate that a port shows, and its renewal while the port is open.

What is read is checked before it is used: a file that is half-written, or a key that belongs to another certificate, is
refused, counted and logged once, and the certificate in use stays. New connections get the new one; those that are open
keep theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from epp.errors import ConfigError
from epp.metrics.gauges import Reading, ReadingSource
from epp.runtime.followed_files import FollowedFiles

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20


class Pair(NamedTuple):
    """A certificate with its chain, and its private key, both as PEM."""

    chain: bytes
    private_key: bytes


class Certificate:
    """The pair that a port shows now. Owner: the event loop; ``pair`` may be read by any thread.

    Invariant: ``pair`` has passed ``check_pair``.
    """

    def __init__(self, pair: Pair, folder: Path | None = None, flag: str = "--cert-path") -> None:
        """``folder`` is where ``flag`` said that the pair is; without one it never changes."""
        self.pair = pair
        self.folder = folder
        self.flag = flag
        self.reloads = 0
        self.failures = 0
        """Contents of the files that could not be used."""
        self.listeners: list[Callable[[Pair], None]] = []
        """Told of each new pair before any connection sees it."""
        self._refused: Pair | str | None = None

    @classmethod
    def from_folder(cls, folder: Path, flag: str = "--cert-path") -> Certificate:
        """The pair in ``tls.crt`` and ``tls.key``. Raises: ConfigError naming ``flag`` and what is wrong."""
        pair = read_pair(folder, flag)
        check_pair(pair, f"{flag}={folder}")
        return cls(pair, folder, flag)

    def look(self) -> bool:
        """Read the files again, and take what they hold if it is new and can be used. Returns whether it was taken.

        Never raises; what cannot be used is counted and logged when it is first seen.
        """
        return self.folder is not None and self._take(self._found(self.folder))

    async def follow(self) -> None:
        """Take what the files hold now, and whenever they change; for ever, if there is a folder. They are read in a
        thread: they may lie on a slow disk."""
        if self.folder is None:
            return
        files = FollowedFiles(self.folder / "tls.crt", self.folder / "tls.key")
        try:
            async for _ in files.changes():
                files.seen()
                self._take(await asyncio.to_thread(self._found, self.folder))
        finally:
            files.stop()

    def _found(self, folder: Path) -> Pair | str:
        """What the files hold, or what is wrong with them."""
        try:
            return read_pair(folder, self.flag)
        except ConfigError as error:
            return str(error)

    def _take(self, found: Pair | str) -> bool:
        if found == self.pair:
            self._refused = None
            return False
        if found == self._refused:
            return False
        try:
            pair = self._checked(found)
        except ConfigError as error:
            self._refused = found
            self.failures += 1
            log.error("%s; the certificate in use stays", error)  # noqa: TRY400 - the sentence says all
            return False
        self.pair, self._refused = pair, None
        self.reloads += 1
        log.info("%s=%s: new connections see the new certificate", self.flag, self.folder)
        return True

    def _checked(self, found: Pair | str) -> Pair:
        """``found``, known to every listener. Raises: ConfigError."""
        if isinstance(found, str):
            raise ConfigError(found)
        check_pair(found, f"{self.flag}={self.folder}")
        for listener in self.listeners:
            listener(found)
        return found


def read_pair(folder: Path, flag: str) -> Pair:
    """What ``tls.crt`` and ``tls.key`` in ``folder`` hold. Raises: ConfigError naming ``flag`` and the file."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise ConfigError(f"{flag}={folder}: {what}; it must be a folder with tls.crt and tls.key")
    texts = []
    for name in ("tls.crt", "tls.key"):
        try:
            with (folder / name).open("rb") as file:
                texts.append(file.read(MAX_FILE_BYTES + 1))
        except FileNotFoundError as error:
            raise ConfigError(f"{flag}={folder}: there is no file {name} in it") from error
        except OSError as error:
            raise ConfigError(f"{flag}={folder}: {name} cannot be read: {error.strerror or error}") from error
        if len(texts[-1]) > MAX_FILE_BYTES:
            raise ConfigError(f"{flag}={folder}: {name} is larger than {MAX_FILE_BYTES:,} bytes")
    return Pair(*texts)


def check_pair(pair: Pair, where: str) -> None:
    """Raises: ConfigError beginning with ``where`` unless the key belongs to the certificate."""
    for name, content, what in (
        ("tls.crt", pair.chain, b"CERTIFICATE"),
        ("tls.key", pair.private_key, b"PRIVATE KEY"),
    ):
        if not re.search(rb"-----BEGIN [A-Z ]*" + what + rb"-----", content):
            raise ConfigError(f"{where}: {name} is no PEM: it has no line -----BEGIN {what.decode()}-----")
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{where}: {_blamed(pair, error)}") from error


def _blamed(pair: Pair, error: OSError) -> str:
    """Which of the two files ``error`` is about, in a sentence."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key in tls.key does not belong to the certificate in tls.crt"
    try:
        text = pair.chain.decode("ascii", "ignore")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as broken:
        return f"the certificate in tls.crt cannot be read: {broken}"
    return f"the private key in tls.key cannot be read (keys with a password are not): {error}"


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Let ``context`` show ``pair``. Raises: ssl.SSLError; ``context`` is of no use then."""
    with _as_file(pair.chain) as chain, _as_file(pair.private_key) as key:
        context.load_cert_chain(chain, key, password=_no_password)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to ``content``, which the library needs: in memory, for a key should not lie on a disk, and a container's
    file system may be read-only."""
    if not hasattr(os, "memfd_create"):  # not Linux
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _no_password() -> str:
    """Else OpenSSL asks at the terminal."""
    return ""


def certificate_readings(certificates: Sequence[Certificate]) -> ReadingSource:
    """Renewals of the certificates that ports show."""

    def read() -> Iterator[Reading]:
        reloads = [((c.flag,), c.reloads) for c in certificates]
        failures = [((c.flag,), c.failures) for c in certificates]
        for name, text, counts in (
            ("tierwise_certificate_reloads", "Renewed certificates taken from their files.", reloads),
            ("tierwise_certificate_errors", "Changes of the files that could not be used.", failures),
        ):
            yield Reading(name, text, ("flag",), counts, counter=True)

    return read
