"""The certificate that a port shows, and its renewal while the port is open.

Files are checked before they are used: a file that is half-written, or a key that belongs to another certificate, is
refused, counted and logged once, and the certificate in use stays. New connections get the new certificate; open ones
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
        """``folder`` is the value of ``flag``; without one the pair never changes."""
        self.pair = pair
        self.folder = folder
        self.flag = flag
        self.reloads = 0
        self.failures = 0
        """How many contents of the files could not be used."""
        self.listeners: list[Callable[[Pair], None]] = []
        """Called with each new pair before a connection sees it."""
        self._refused: Pair | str | None = None

    @classmethod
    def from_folder(cls, folder: Path, flag: str = "--cert-path") -> Certificate:
        """Return the certificate in ``tls.crt`` and ``tls.key``. Raises: ConfigError naming ``flag`` and the fault."""
        pair = read_pair(folder, flag)
        check_pair(pair, f"{flag}={folder}")
        return cls(pair, folder, flag)

    def look(self) -> bool:
        """Read the files again, use their pair if it is new and valid, and return whether it was used.

        Never raises; an invalid pair is counted and logged when it is first seen.
        """
        return self.folder is not None and self._take(self._found(self.folder))

    async def follow(self) -> None:
        """Use the pair in the files now, and again whenever they change. Does not return if there is a folder.

        The files are read in a thread, since they may lie on a slow disk.
        """
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
        """Return the pair in the files, or a sentence about their fault."""
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
        """Return ``found`` once it is checked and every listener was called with it. Raises: ConfigError."""
        if isinstance(found, str):
            raise ConfigError(found)
        check_pair(found, f"{self.flag}={self.folder}")
        for listener in self.listeners:
            listener(found)
        return found


def read_pair(folder: Path, flag: str) -> Pair:
    """Return the pair of files ``tls.crt`` and ``tls.key`` in ``folder``. Raises: ConfigError naming flag and file."""
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
    """Check that the key belongs to the certificate. Raises: ConfigError that begins with ``where`` if not."""
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
    """Return a sentence that names the file that ``error`` is about."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key in tls.key does not belong to the certificate in tls.crt"
    try:
        text = pair.chain.decode("ascii", "ignore")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as broken:
        return f"the certificate in tls.crt cannot be read: {broken}"
    return f"the private key in tls.key cannot be read (keys with a password are not): {error}"


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Make ``context`` show ``pair``. Raises: ssl.SSLError; ``context`` cannot be used then."""
    with _as_file(pair.chain) as chain, _as_file(pair.private_key) as key:
        context.load_cert_chain(chain, key, password=_no_password)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a path to ``content`` in memory, since the library takes only paths.

    A key should not lie on a disk, and the file system of a container may be read-only.
    """
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
    """Return no password; without this callback OpenSSL asks at the terminal."""
    return ""


def certificate_readings(certificates: Sequence[Certificate]) -> ReadingSource:
    """Return the readings of the renewals of ``certificates``."""

    def read() -> Iterator[Reading]:
        reloads = [((c.flag,), c.reloads) for c in certificates]
        failures = [((c.flag,), c.failures) for c in certificates]
        for name, text, counts in (
            ("tierwise_certificate_reloads", "Renewed certificates taken from their files.", reloads),
            ("tierwise_certificate_errors", "Changes of the files that could not be used.", failures),
        ):
            yield Reading(name, text, ("flag",), counts, counter=True)

    return read
