"""Bodies that are packed (``content-encoding``): what the picker cannot read is refused in a sentence that says why.

They are not unpacked: the engine gets the same bytes, and vLLM's server does not read them either; and a few bytes of
gzip can be gigabytes.
"""

from __future__ import annotations

from epp.decision import RequestHead
from epp.errors import BadRequest, UnsupportedEncoding
from epp.parsers.base import Parsed, Reader
from epp.picking.request import MODEL_REWRITE, first

HEADER = "content-encoding"
LONGEST_SHOWN = 40
"""Characters of the header in an error."""


def parse(reader: Reader, head: RequestHead, body: bytes) -> Parsed:
    """What ``reader`` makes of ``body``.

    Raises: BadRequest; UnsupportedEncoding where the head says that the body is packed.
    """
    try:
        return reader.parse(head.path, body, first(head, MODEL_REWRITE))
    except BadRequest as error:
        encoding = head.headers.get(HEADER, "").strip()
        if encoding.lower() in ("", "identity"):
            raise
        raise UnsupportedEncoding(
            f"request bodies with {HEADER} {encoding[:LONGEST_SHOWN]!r} are not read; send the body as plain JSON, "
            "without that header"
        ) from error
