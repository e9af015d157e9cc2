"""Answers of the proxy itself, in the form of the client's API and in sentences that help.

The picker's own refusals pass here, too, and are not changed. Of the replies below, the first whose condition holds is
used.

They are plain values, in the form of Envoy's JSON, and not messages of ``envoy_data_plane``: there are about forty, and
messages would take 0.4 s of CPU at every start. Envoy itself checks them (``tests/epp/standalone/test_bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from epp.client import ANTHROPIC_HEADER, ANTHROPIC_PATHS, GRPC_CONTENT, REQUEST_ID, Api
from epp.errors import LEAST_RETRY_AFTER_S, too_large
from epp.extproc.options import ErrorFormat
from epp.extproc.refusal import ANY_ORIGIN, JSON, envelope
from epp.standalone.settings import ProxySettings

Plain: TypeAlias = dict[str, object]
"""An Envoy message as plain data, with Envoy's own names for the fields."""

HUNG_PICKER = 504
"""Envoy's status for a picker that does not answer in time; no other time limit here has this status. Clients get 503,
as for a picker that is down.
"""
WHY = "%LOCAL_REPLY_BODY%"
"""Envoy's own text for the answer."""
DETAILS = "%RESPONSE_CODE_DETAILS%"
"""Envoy's short name of the fault."""


class Reply(NamedTuple):
    """An answer and its condition."""

    when: Plain
    status: int
    """The client's status; one that is not among ``epp.extproc.refusal``'s leaves Envoy's own."""
    sentence: str
    """May contain Envoy's command operators."""
    retry: bool = False
    """Whether the same request may succeed soon."""


def local_replies(settings: ProxySettings) -> Plain:
    """Return the form and the text of the proxy's own answers: a ``LocalReplyConfig``."""
    particular = list(replies(settings.max_request_bytes))
    if settings.error_format is ErrorFormat.TEXT:
        late = {"filter": has_status(HUNG_PICKER), "status_code": 503, "headers_to_add": [RETRY_AFTER]}
        passing = [reply.when for reply in particular if reply.retry]
        soon = {"filter": {"or_filter": {"filters": passing}}, "headers_to_add": [RETRY_AFTER]}
        return {"mappers": [late, soon]}
    mappers: list[Plain] = [{"filter": REFUSED_BY_PICKER}]
    for reply in particular:
        mappers += [mapper(reply, api) for api in (Api.GRPC, Api.ANTHROPIC, Api.OPENAI)]
    mappers.append(mapper(FOR_GRPC, Api.GRPC))
    for reply in others():
        mappers += [mapper(reply, api) for api in (Api.ANTHROPIC, Api.OPENAI)]
    return {"mappers": mappers}


def replies(max_request_bytes: int) -> Iterator[Reply]:
    """Yield the proxy's own answers whose reason is known, the most specific first."""
    yield Reply(flagged("UH"), 503, "the proxy knows no endpoint that it could send the request to; try again", True)
    yield Reply(flagged("UF"), 503, f"no endpoint could be reached: {WHY}; try again", True)
    # Clients should not retry these blindly: a prompt that crashes an engine must not reach the next one.
    yield Reply(
        flagged("UC", "UR", "LR"),
        503,
        f"the endpoint ended the connection before it had answered, and its log may say why: {WHY}",
    )
    yield Reply(details_begin_with("direct_response"), 404, WHY)  # the route has the reason
    yield Reply(flagged("UPE"), 502, f"the endpoint's answer is not HTTP: {WHY}")
    yield Reply(has_status(413), 413, too_large(max_request_bytes))
    yield Reply(has_status(HUNG_PICKER), 503, "the picker did not answer in time; try again", True)
    yield Reply(details_begin_with("ext_proc"), 503, "the picker cannot be reached; try again", True)
    yield Reply(has_status(408), 408, "the request did not arrive in time")
    yield Reply(has_status(431), 431, "the request's headers are larger than the proxy takes")


def others() -> Iterator[Reply]:
    """Yield the answers for any other reason, by status, since JSON clients read an error type that depends on it."""
    for status in (403, 404, 503):
        yield Reply(has_status(status), status, f"the proxy refused the request: {DETAILS}")
    yield Reply(has_status(500, or_more=True), 500, f"the proxy could not serve the request: {DETAILS}")
    yield Reply(has_status(400, or_more=True), 400, f"the proxy refused the request: {DETAILS}")


def mapper(reply: Reply, api: Api) -> Plain:
    """Return ``reply`` for the clients of ``api``; OpenAI's also serves all other clients."""
    conditions = {Api.GRPC: [IS_GRPC], Api.ANTHROPIC: [IS_ANTHROPIC], Api.OPENAI: []}[api]
    made: Plain = {
        "filter": {"and_filter": {"filters": [*conditions, reply.when]}} if conditions else reply.when,
        "body_format_override": body(reply, api),
    }
    if added := [*([RETRY_AFTER] if reply.retry else []), *([READABLE] if api is not Api.GRPC else [])]:
        made["headers_to_add"] = added
    if reply.when == has_status(HUNG_PICKER):
        made["status_code"] = reply.status
    return made


def body(reply: Reply, api: Api) -> Plain:
    """Return the body of the answer; Envoy turns the plain sentence into a gRPC message."""
    if api is Api.GRPC:
        return {"text_format_source": {"inline_string": reply.sentence}}
    written = envelope(api, reply.status, reply.sentence, f"%REQ({REQUEST_ID})%", code="%RESPONSE_CODE%")
    return {"json_format": written, "content_type": JSON}


def has_status(status: int, *, or_more: bool = False) -> Plain:
    """Return the condition that Envoy's answer has ``status``."""
    number = {"default_value": status, "runtime_key": f"tierwise.local_reply.{status}"}
    return {"status_code_filter": {"comparison": {"op": "GE" if or_more else "EQ", "value": number}}}


def flagged(*flags: str) -> Plain:
    """Return the condition that Envoy set one of ``flags`` on the request."""
    return {"response_flag_filter": {"flags": list(flags)}}


def expression(text: str) -> Plain:
    """Return the condition that the CEL expression ``text`` is true."""
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                "expression": text,
            },
        }
    }


def details_begin_with(text: str) -> Plain:
    """Return the condition that Envoy's short name of the fault begins with ``text``."""
    return expression(f"response.code_details.startsWith('{text}')")


def header(name: str, **match: object) -> Plain:
    """Return the condition that the request's header ``name`` meets ``match``, a part of Envoy's ``HeaderMatcher``."""
    return {"header_filter": {"header": {"name": name, **match}}}


IS_GRPC = header("content-type", string_match={"prefix": GRPC_CONTENT})
_ANTHROPIC = rf"[^?]*({'|'.join(ANTHROPIC_PATHS)})(\?.*)?"
IS_ANTHROPIC: Plain = {
    "or_filter": {
        "filters": [
            header(":path", string_match={"safe_regex": {"regex": _ANTHROPIC}}),
            header(ANTHROPIC_HEADER, present_match=True),
        ]
    }
}
FOR_GRPC = Reply(has_status(400, or_more=True), 500, f"the proxy did not serve the request: {DETAILS}")
"""The answer for any other reason, for clients that read a status and a sentence."""
REFUSED_BY_PICKER = expression("'content-type' in response.headers")
"""The picker's refusals have a content type; Envoy's own have none yet."""
RETRY_AFTER: Plain = {
    "header": {"key": "retry-after", "value": str(LEAST_RETRY_AFTER_S)},
    "append_action": "ADD_IF_ABSENT",
}
READABLE: Plain = {
    "header": dict(zip(("key", "value"), ANY_ORIGIN, strict=True)),
    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
}
