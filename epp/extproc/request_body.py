"""What has arrived of one request's body, counted against what a request and what the picker may hold."""

from __future__ import annotations

from epp.errors import TooLarge, too_large
from epp.picking.body_budget import HeldBytes


class RequestBody:
    """The pieces of one body, in order. Owned by its exchange.

    Invariant: the account has been charged for what ``release`` gives back, whether or not the pieces were taken out
    before.
    """

    __slots__ = ("_account", "_arrived_bytes", "_charged", "_max_bytes", "_pieces")

    def __init__(self, account: HeldBytes, max_bytes: int) -> None:
        self._account = account
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._arrived_bytes = 0
        self._charged = 0

    @property
    def begun(self) -> bool:
        """Whether a piece has arrived and was not taken out, be it an empty one."""
        return bool(self._pieces)

    def add(self, piece: bytes) -> None:
        """Keep the next piece. Raises: TooLarge, HoldsTooMuch; the piece is not kept then."""
        self._arrived_bytes += len(piece)
        if self._arrived_bytes > self._max_bytes:
            raise TooLarge(too_large(self._max_bytes))
        if piece or not self._pieces:  # an endless row of empty pieces takes no memory
            self._charged += self._account.take(piece)
            self._pieces.append(piece)

    def take(self) -> bytes:
        """Take out everything that has arrived; it stays charged until ``release``."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def release(self) -> None:
        """Drop the pieces and give back what they were charged for. Twice is no error."""
        self._pieces = []
        if self._charged:
            self._account.give_back(self._charged)
            self._charged = 0
