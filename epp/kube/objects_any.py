"""Objects of any kind as plain data, with every field."""

from __future__ import annotations

from typing import Any

import msgspec

from epp.kube.objects import Metadata, Plain, without_nulls


class AnyObject(Plain):
    """One object; ``fields`` is the whole of it, as the API server writes it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """Raises: msgspec.ValidationError for metadata that is not as the API writes it."""
        self.fields = fields
        self.metadata = msgspec.convert(without_nulls(fields.get("metadata") or {}), Metadata)
