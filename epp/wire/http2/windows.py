"""How much a client may still send: one window per stream, and one for the connection.

Source: RFC 9113 section 5.2.
"""

from __future__ import annotations


class ReceiveWindow:
    """``left`` bytes may arrive; ``consumed`` bytes were taken out and not yet given back.

    Whoever takes bytes in moves both; ``left`` below zero means that the client had no right to send them.
    Units: bytes. Grants are batched: nothing is given back before half of ``size`` was consumed.
    """

    __slots__ = ("consumed", "left", "size")

    def __init__(self, size: int, left: int) -> None:
        self.size = size
        self.left = left
        self.consumed = 0

    def grant(self) -> int:
        """Return the increment that is due now, counted as given; 0 when it can wait."""
        increment = self.consumed
        if increment * 2 < self.size or not increment:
            return 0
        self.consumed = 0
        self.left += increment
        return increment
