"""Receive windows: how much a client may still send, on each stream and on the connection.

Source: RFC 9113 section 5.2.
"""

from __future__ import annotations


class ReceiveWindow:
    """A window in which ``left`` bytes may arrive; ``consumed`` bytes have arrived since the last grant.

    ``Inbound`` changes both as bytes arrive; ``left`` below zero means that the client exceeded the window. Grants are
    batched: nothing is granted before half of ``size`` was consumed. Units: bytes.
    """

    __slots__ = ("consumed", "left", "size")

    def __init__(self, size: int, left: int) -> None:
        self.size = size
        self.left = left
        self.consumed = 0

    def grant(self) -> int:
        """Return the increment that is due now, and count it as granted; 0 if it can wait."""
        increment = self.consumed
        if increment * 2 < self.size or not increment:
            return 0
        self.consumed = 0
        self.left += increment
        return increment
