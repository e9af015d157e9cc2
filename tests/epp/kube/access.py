"""The identity that the API server of the tests accepts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class TokenAccess:
    """An ``Access`` by a token, over plain HTTP; a renewal takes the next token of ``fresh``."""

    server: str
    token: str = "a-token"
    fresh: list[str] = field(default_factory=list)
    namespace: str | None = "default"
    tls_name: str | None = None
    proxy: str | None = None

    async def headers(self, *, renew: bool) -> Mapping[str, str]:
        if renew and self.fresh:
            self.token = self.fresh.pop(0)
        return {"Authorization": f"Bearer {self.token}"}

    def tls(self) -> ssl.SSLContext | None:
        return None
