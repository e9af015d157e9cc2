"""``passthrough-parser``: reads nothing, since engines serve more than a router should have to understand."""

from __future__ import annotations

from typing_extensions import override

from epp.parsers.base import UNREAD, Parsed, Parser
from scorers.base import NoParameters


class PassthroughParser(Parser[NoParameters]):
    """Takes what no other parser reads, and lets it pass as it is: its endpoint is picked by load alone."""

    type_name = "passthrough-parser"

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        return UNREAD
