"""One request as far as it has arrived: its head, its client, and the pieces of its body."""

from __future__ import annotations

from epp.client import Client, client_of
from epp.decision import RequestHead
from epp.errors import TooLarge, too_large
from epp.extproc import messages
from epp.extproc.body_budget import BodyBudget
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest


class ArrivingRequest:
    """Owned by its exchange, which lets go of it when the request is placed or refused.

    Invariant: the account has been charged for what ``release`` gives back, whether or not the pieces were taken out
    before.
    """

    __slots__ = ("_account", "_arrived_bytes", "_charged", "_pieces", "_settings", "began_s", "client", "head")

    def __init__(self, account: BodyBudget, settings: ExchangeSettings) -> None:
        self.head: RequestHead | None = None
        self.client = Client()
        self.began_s = 0.0
        self._account = account
        self._settings = settings
        self._pieces: list[bytes] = []
        self._arrived_bytes = 0
        self._charged = 0

    def begin(self, message: ProcessingRequest, now: float) -> RequestHead:
        """Take the request's headers, and return its head."""
        self.began_s = now
        self.head = head = messages.request_head(message.request_headers, self._subset(message), now)
        self.client = client_of(head)
        return head

    def keep(self, message: ProcessingRequest) -> bytes:
        """Keep the next piece of the body, and return it.

        Raises: TooLarge, HoldsTooMuch; the piece is not kept then.
        """
        piece = message.request_body.body
        self._arrived_bytes += len(piece)
        if self._arrived_bytes > self._settings.max_request_bytes:
            raise TooLarge(too_large(self._settings.max_request_bytes))
        if piece or not self._pieces:  # an endless row of empty pieces takes no memory
            self._charged += self._account.take(piece)
            self._pieces.append(piece)
        subset = self._subset(message)
        if subset is not None and self.head is not None:
            self.head = RequestHead(self.head.headers, subset, self.head.received_s)
        return piece

    def take_body(self) -> bytes | None:
        """Take out the pieces, joined; None where not even an empty one has arrived. They stay charged."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces) if pieces else None

    def take_head(self) -> RequestHead:
        """Take out the head, once, and drop the pieces, which stay charged until ``release``."""
        head = self.head
        assert head is not None  # noqa: S101 - every state that decides comes after the headers
        self.head = None
        self._pieces = []
        return head

    def release(self) -> None:
        """Drop the pieces and give back what they were charged for. Twice is no error."""
        self._pieces = []
        if self._charged:
            self._account.give_back(self._charged)
            self._charged = 0

    def forget(self) -> None:
        """Drop the head as well as the pieces; the client stays known, for a refusal."""
        self.head = None
        self.release()

    def _subset(self, message: ProcessingRequest) -> frozenset[str] | None:
        if self._settings.any_subset and message.HasField("metadata_context"):
            return messages.subset_in(message.metadata_context)
        return None
