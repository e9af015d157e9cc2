"""Ask kvengine which tier a prompt's cached tokens came from, in a request whose response is seen anyway.

The question is one more field of the body, so it costs what sending the body costs: nothing more where the proxy needs
the body back (full duplex); in standalone mode, only a sample of the requests has its body sent back. Only engines that
report tiers are asked, and only in requests whose response can carry the report: vLLM writes it into the whole
responses to completions and chats.
"""

from __future__ import annotations

from epp.decision import Decision, RequestHead

FIELD = b'"kv_transfer_params"'
QUESTION = FIELD + b':{"kvengine_report":true},'
ANSWERING = "/completions"
"""The end of the paths whose responses can have the field."""


def with_question(decision: Decision, body: bytes) -> bytes | None:
    """Return ``body``, a JSON object, with the question; None if none is due, or if the body uses the field itself."""
    request = decision.request
    if request is None or request.streaming or not decision.chosen[0].tiers or FIELD in body:
        return None
    if not RequestHead(request.headers).path.endswith(ANSWERING):
        return None
    begin = body.find(b"{") + 1
    if not begin or body[begin:].lstrip()[:1] != b'"':
        return None
    return body[:begin] + QUESTION + body[begin:]
