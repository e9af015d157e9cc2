"""Refusals of a simulated endpoint, in the form that client libraries expect."""

from __future__ import annotations

import msgspec

ANTHROPIC_KINDS = {400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large"}
"""Source: Anthropic's API reference, "Errors"; any other status is ``api_error``."""


class ApiError(Exception):
    """A refusal, with an HTTP status other than 200; ``kind`` is the error's ``type``."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param

    def body(self, path: str) -> bytes:
        """Return the JSON that clients of ``path`` expect: vLLM's, or Anthropic's for ``/v1/messages``."""
        if path.startswith("/v1/messages"):
            kind = ANTHROPIC_KINDS.get(self.status, "api_error")
            return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": self.message}})
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Return the refusal of a request that cannot be understood or served."""
    return ApiError(400, "BadRequestError", message, param)
