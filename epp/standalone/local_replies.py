"""Answers that the proxy gives by itself, in the form of the client's API and in sentences that help.

The picker's own refusals pass here, too, and are left as they are. Of the replies below, the first whose condition
holds is taken.

They are plain values, as Envoy reads them in JSON, and not messages of ``envoy_data_plane``: there are some forty, and
messages would take 0.4 s of CPU at every start. Envoy itself checks them (``tests/epp/standalone/test_bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from epp.errors import LEAST_RETRY_AFTER_S, too_large
from epp.extproc.refusal import ANTHROPIC_HEADER, ANTHROPIC_PATHS, GRPC_CONTENT, JSON, Api, envelope
from epp.picking.request import REQUEST_ID
from epp.server.options import ErrorFormat
from epp.standalone.settings import ProxySettings

Plain: TypeAlias = dict[str, object]
"""A message of Envoy's, with its own names for the fields."""

HUNG_PICKER = 504
"""Envoy's status for a picker that does not answer in time; nothing else here has a time limit that it answers so.
Clients get 503: such a picker is one that is not there."""
WHY = "%LOCAL_REPLY_BODY%"
"""What Envoy would have answered."""
DETAILS = "%RESPONSE_CODE_DETAILS%"
"""Envoy's word for what was wrong."""


class Reply(NamedTuple):
    """What is answered, and when."""

    when: Plain
    status: int
    """What the client gets; a status that is not among ``epp.extproc.refusal``'s leaves Envoy's own."""
    sentence: str
    """With Envoy's command operators."""
    retry: bool = False
    """Whether the same request may succeed soon."""


def local_replies(settings: ProxySettings) -> Plain:
    """How the proxy words its own answers: a ``LocalReplyConfig``."""
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
    """The answers that the proxy gives for a reason that is known, the most particular first."""
    yield Reply(flagged("UH"), 503, "the proxy knows no endpoint that it could send the request to; try again", True)
    yield Reply(flagged("UF"), 503, f"no endpoint could be reached: {WHY}; try again", True)
    # Not to be retried blindly: a prompt that kills an engine must not be shown to the next.
    yield Reply(
        flagged("UC", "UR", "LR"),
        503,
        f"the endpoint ended the connection before it had answered, and its log may say why: {WHY}",
    )
    yield Reply(details_begin_with("direct_response"), 404, WHY)  # the route says why
    yield Reply(flagged("UPE"), 502, f"the endpoint's answer is not HTTP: {WHY}")
    yield Reply(has_status(413), 413, too_large(max_request_bytes))
    yield Reply(has_status(HUNG_PICKER), 503, "the picker did not answer in time; try again", True)
    yield Reply(details_begin_with("ext_proc"), 503, "the picker cannot be reached; try again", True)
    yield Reply(has_status(408), 408, "the request did not arrive in time")
    yield Reply(has_status(431), 431, "the request's headers are larger than the proxy takes")


def others() -> Iterator[Reply]:
    """The answers for any other reason, by status, since JSON's clients read a type that goes by it."""
    for status in (403, 404, 503):
        yield Reply(has_status(status), status, f"the proxy refused the request: {DETAILS}")
    yield Reply(has_status(500, or_more=True), 500, f"the proxy could not serve the request: {DETAILS}")
    yield Reply(has_status(400, or_more=True), 400, f"the proxy refused the request: {DETAILS}")


def mapper(reply: Reply, api: Api) -> Plain:
    """``reply`` for the clients of ``api``; OpenAI's is for all that are no others."""
    conditions = {Api.GRPC: [IS_GRPC], Api.ANTHROPIC: [IS_ANTHROPIC], Api.OPENAI: []}[api]
    made: Plain = {
        "filter": {"and_filter": {"filters": [*conditions, reply.when]}} if conditions else reply.when,
        "body_format_override": body(reply, api),
    }
    if reply.retry:
        made["headers_to_add"] = [RETRY_AFTER]
    if reply.when == has_status(HUNG_PICKER):
        made["status_code"] = reply.status
    return made


def body(reply: Reply, api: Api) -> Plain:
    """What the client reads; Envoy makes a gRPC message of the plain sentence."""
    if api is Api.GRPC:
        return {"text_format_source": {"inline_string": reply.sentence}}
    written = envelope(api, reply.status, reply.sentence, f"%REQ({REQUEST_ID})%", code="%RESPONSE_CODE%")
    return {"json_format": written, "content_type": JSON}


def has_status(status: int, *, or_more: bool = False) -> Plain:
    """Envoy's answer has ``status``."""
    number = {"default_value": status, "runtime_key": f"tierwise.local_reply.{status}"}
    return {"status_code_filter": {"comparison": {"op": "GE" if or_more else "EQ", "value": number}}}


def flagged(*flags: str) -> Plain:
    """Envoy noted one of ``flags`` of the request."""
    return {"response_flag_filter": {"flags": list(flags)}}


def expression(text: str) -> Plain:
    """``text``, of CEL, is true."""
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
    """Envoy's word for what was wrong begins with ``text``."""
    return expression(f"response.code_details.startsWith('{text}')")


def header(name: str, **match: object) -> Plain:
    """The request's header ``name`` meets ``match``, a part of Envoy's ``HeaderMatcher``."""
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
"""The answer for any other reason, to clients that read a status and a sentence."""
REFUSED_BY_PICKER = expression("'content-type' in response.headers")
"""Its refusals say what they are; Envoy's own have no content type yet."""
RETRY_AFTER: Plain = {
    "header": {"key": "retry-after", "value": str(LEAST_RETRY_AFTER_S)},
    "append_action": "ADD_IF_ABSENT",
}
