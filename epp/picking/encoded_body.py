"""Refuses bodies that the picker cannot read because of their ``content-encoding``, and names that header.

Such bodies are not decompressed: the engine gets the same bytes, which vLLM's server does not read either, and a few
bytes of gzip can become gigabytes.
"""

from __future__ import annotations

from epp.decision import RequestHead
from epp.errors import BadRequest, UnsupportedEncoding
from epp.parsers.base import Parsed, Reader
from epp.picking.request import MODEL_REWRITE, first

HEADER = "content-encoding"
LONGEST_SHOWN = 40
"""The most characters of the header that an error shows."""


def parse(reader: Reader, head: RequestHead, body: bytes) -> Parsed:
    """Return ``body`` as ``reader`` parses it.

    Raises: BadRequest; UnsupportedEncoding if it cannot be parsed and ``head`` has a content encoding.
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
