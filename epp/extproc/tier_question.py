"""Ask kvengine which tier a prompt's cached tokens came from, in a request whose answer will be seen anyway.

The question is one more field of the body, so it costs what sending a body costs: nothing more where the proxy wants
the body back (full duplex), and of standalone's requests only the sample has its body sent back. Asked are only
endpoints whose engine speaks of its tiers, and only requests whose answer can carry the report: vLLM writes it into
whole answers to completions and chats.
"""

from __future__ import annotations

from epp.decision import Decision, RequestHead

FIELD = b'"kv_transfer_params"'
QUESTION = FIELD + b':{"kvengine_report":true},'
ANSWERING = "/completions"
"""How the paths end whose answers have the field."""


def with_question(decision: Decision, body: bytes) -> bytes | None:
    """``body``, a JSON object, with the question; None where it is not to be asked, or uses the field itself."""
    request = decision.request
    if request is None or request.streaming or not decision.chosen[0].tiers or FIELD in body:
        return None
    if not RequestHead(request.headers).path.endswith(ANSWERING):
        return None
    begin = body.find(b"{") + 1
    if not begin or body[begin:].lstrip()[:1] != b'"':
        return None
    return body[:begin] + QUESTION + body[begin:]
