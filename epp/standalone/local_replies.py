"""Answers that the proxy gives by itself, in the form of the client's API and in sentences that help.

The picker's own refusals pass here, too, and are left as they are. Of the replies below, the first whose condition
holds is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    AndFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    ExtensionFilter,
    HeaderFilter,
    OrFilter,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    RuntimeUInt32,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher
from envoy_data_plane.envoy.extensions.access_loggers.filters.cel.v3 import ExpressionFilter
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.google.protobuf import Any, NullValue, Struct, Value

from epp.errors import LEAST_RETRY_AFTER_S, too_large
from epp.extproc.refusal import ANTHROPIC_HEADER, ANTHROPIC_PATHS, GRPC_CONTENT, JSON, Api, envelope
from epp.picking.request import REQUEST_ID
from epp.server.options import ErrorFormat
from epp.standalone.settings import ProxySettings

HUNG_PICKER = 504
"""Envoy's status for a picker that does not answer in time; nothing else here has a time limit that it answers so.
Clients get 503: such a picker is one that is not there."""
WHY = "%LOCAL_REPLY_BODY%"
"""What Envoy would have answered."""
DETAILS = "%RESPONSE_CODE_DETAILS%"
"""Envoy's word for what was wrong."""


class Reply(NamedTuple):
    """What is answered, and when."""

    when: AccessLogFilter
    status: int
    """What the client gets; a status that is not among ``epp.extproc.refusal``'s leaves Envoy's own."""
    sentence: str
    """With Envoy's command operators."""
    retry: bool = False
    """Whether the same request may succeed soon."""


def local_replies(settings: ProxySettings) -> LocalReplyConfig:
    """How the proxy words its own answers."""
    if settings.error_format is ErrorFormat.TEXT:
        late = ResponseMapper(filter=has_status(HUNG_PICKER), status_code=503, headers_to_add=[RETRY_AFTER])
        passing = [reply.when for reply in replies(settings.max_request_bytes) if reply.retry]
        soon = ResponseMapper(filter=AccessLogFilter(or_filter=OrFilter(filters=passing)), headers_to_add=[RETRY_AFTER])
        return LocalReplyConfig(mappers=[late, soon])
    mappers = [ResponseMapper(filter=REFUSED_BY_PICKER)]
    for reply in replies(settings.max_request_bytes):
        mappers += [mapper(reply, api) for api in (Api.GRPC, Api.ANTHROPIC, Api.OPENAI)]
    return LocalReplyConfig(mappers=mappers)


def replies(max_request_bytes: int) -> Iterator[Reply]:
    """Every answer that the proxy gives by itself, the most particular first."""
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
    for status in (403, 404, 503):
        yield Reply(has_status(status), status, f"the proxy refused the request: {DETAILS}")
    yield Reply(has_status(500, or_more=True), 500, f"the proxy could not serve the request: {DETAILS}")
    yield Reply(has_status(400, or_more=True), 400, f"the proxy refused the request: {DETAILS}")


def mapper(reply: Reply, api: Api) -> ResponseMapper:
    """``reply`` for the clients of ``api``; OpenAI's is for all that are no others."""
    conditions = {Api.GRPC: [IS_GRPC], Api.ANTHROPIC: [IS_ANTHROPIC], Api.OPENAI: []}[api]
    made = ResponseMapper(
        filter=AccessLogFilter(and_filter=AndFilter(filters=[*conditions, reply.when])) if conditions else reply.when,
        body_format_override=body(reply, api),
        headers_to_add=[RETRY_AFTER] if reply.retry else [],
    )
    if reply.when == has_status(HUNG_PICKER):
        made.status_code = reply.status
    return made


def body(reply: Reply, api: Api) -> SubstitutionFormatString:
    """What the client reads; Envoy makes a gRPC message of the plain sentence."""
    if api is Api.GRPC:
        return SubstitutionFormatString(text_format_source=DataSource(inline_string=reply.sentence))
    written = envelope(api, reply.status, reply.sentence, f"%REQ({REQUEST_ID})%", code="%RESPONSE_CODE%")
    return SubstitutionFormatString(json_format=struct(written), content_type=JSON)


def struct(fields: Mapping[str, object]) -> Struct:
    """``fields`` as Envoy reads JSON."""
    return Struct(fields={name: value(field) for name, field in fields.items()})


def value(field: object) -> Value:
    """One value of ``struct``."""
    if isinstance(field, Mapping):
        return Value(struct_value=struct(field))
    return Value(null_value=NullValue.NULL_VALUE) if field is None else Value(string_value=str(field))


def has_status(status: int, *, or_more: bool = False) -> AccessLogFilter:
    """Envoy's answer has ``status``."""
    op = ComparisonFilterOp.GE if or_more else ComparisonFilterOp.EQ
    number = RuntimeUInt32(default_value=status, runtime_key=f"tierwise.local_reply.{status}")
    return AccessLogFilter(
        status_code_filter=StatusCodeFilter(comparison=ComparisonFilter(op=op, value=number)),
    )


def flagged(*flags: str) -> AccessLogFilter:
    """Envoy noted one of ``flags`` of the request."""
    return AccessLogFilter(response_flag_filter=ResponseFlagFilter(flags=list(flags)))


def expression(text: str) -> AccessLogFilter:
    """``text``, of CEL, is true."""
    return AccessLogFilter(
        extension_filter=ExtensionFilter(
            name="envoy.access_loggers.extension_filters.cel", typed_config=Any.pack(ExpressionFilter(expression=text))
        )
    )


def details_begin_with(text: str) -> AccessLogFilter:
    """Envoy's word for what was wrong begins with ``text``."""
    return expression(f"response.code_details.startsWith('{text}')")


def header(name: str, match: StringMatcher | None = None) -> AccessLogFilter:
    """The request's header ``name`` matches, or is there at all."""
    found = (
        HeaderMatcher(name=name, present_match=True) if match is None else HeaderMatcher(name=name, string_match=match)
    )
    return AccessLogFilter(header_filter=HeaderFilter(header=found))


IS_GRPC = header("content-type", StringMatcher(prefix=GRPC_CONTENT))
IS_ANTHROPIC = AccessLogFilter(
    or_filter=OrFilter(
        filters=[
            header(
                ":path", StringMatcher(safe_regex=RegexMatcher(regex=rf"[^?]*({'|'.join(ANTHROPIC_PATHS)})(\?.*)?"))
            ),
            header(ANTHROPIC_HEADER),
        ]
    )
)
REFUSED_BY_PICKER = expression("'content-type' in response.headers")
"""Its refusals say what they are; Envoy's own have no content type yet."""
RETRY_AFTER = HeaderValueOption(
    header=HeaderValue(key="retry-after", value=str(LEAST_RETRY_AFTER_S)),
    append_action=HeaderValueOptionHeaderAppendAction.ADD_IF_ABSENT,
)
