"""The ``passthrough-parser``, which reads nothing.

Engines have more APIs than a router should have to understand.
"""

from __future__ import annotations

from typing_extensions import override

from epp.parsers.base import UNREAD, Parsed, Parser
from scorers.base import NoParameters


class PassthroughParser(Parser[NoParameters]):
    """Accepts the bodies that no other parser reads.

    They pass unchanged, and their endpoints are picked by load alone.
    """

    type_name = "passthrough-parser"

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        return UNREAD
