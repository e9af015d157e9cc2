"""The ``vertexai-parser``: Vertex AI's gRPC API, whose requests wrap a JSON body of the OpenAI API.

Source: ``PredictionService`` of google.cloud.aiplatform v1beta1. ChatCompletions holds a chat. RawPredict and
StreamRawPredict hold whatever the model server takes, which is read as a Responses request, as in the Go picker.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from typing_extensions import override

from epp.errors import BadRequest
from epp.parsers.base import UNREAD, Parsed, Parser
from epp.parsers.by_path import longest_suffix
from epp.parsers.grpc_body import frame, read
from epp.parsers.openai import OpenAIParser
from epp.pb.vertex_prediction_pb2 import RawPredictRequest
from scorers.base import NoParameters

INNER = {
    "PredictionService/ChatCompletions": "/chat/completions",
    "PredictionService/RawPredict": "/responses",
    "PredictionService/StreamRawPredict": "/responses",
}
"""For each method, the path to which its JSON would be sent without the wrapping."""
OTHERS = tuple(
    f"PredictionService/{method}"
    for method in (
        "CountTokens", "DirectPredict", "DirectRawPredict", "EmbedContent", "Explain", "FetchPredictOperation",
        "GenerateContent", "Predict", "PredictLongRunning", "ServerStreamingPredict", "StreamDirectPredict",
        "StreamDirectRawPredict", "StreamGenerateContent", "StreamingPredict", "StreamingRawPredict",
    )
)  # fmt: skip
"""The methods whose requests pass unread."""


class WrappedParser(OpenAIParser):
    """Reads wrapped bodies, which need not name a model, since the wrapping may do so."""

    requires_model: ClassVar[bool] = False


class VertexAIParser(Parser[NoParameters]):
    """Reads ChatCompletions, RawPredict and StreamRawPredict; passes the service's other methods on unread."""

    type_name = "vertexai-parser"
    paths = (*INNER, *OTHERS)

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._inner = WrappedParser()

    @override
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        inner = INNER.get(longest_suffix(path, self.paths) or "")
        if inner is None:
            return UNREAD
        request = read(body, RawPredictRequest())
        if not request.HasField("http_body"):
            raise BadRequest("`http_body` must hold the request")
        parsed = self._inner.parse(inner, request.http_body.data, target_model)
        if parsed.body is None:
            return parsed
        request.http_body.data = parsed.body
        return msgspec.structs.replace(parsed, body=frame(request.SerializeToString()))
