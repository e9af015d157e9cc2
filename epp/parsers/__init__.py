"""Readers of request bodies, one file per family of APIs; ``PARSERS`` lists them."""

from epp.parsers.anthropic import AnthropicParser
from epp.parsers.base import Parsed, Parser, Reader
from epp.parsers.by_path import ByPath
from epp.parsers.openai import OpenAIParser
from epp.parsers.passthrough import PassthroughParser
from epp.parsers.sglanghttp import SGLangHttpParser
from epp.parsers.vertexai import VertexAIParser
from epp.parsers.vllmgrpc import VllmGrpcParser
from epp.parsers.vllmhttp import VllmHttpParser

DEFAULT_PARSERS = (OpenAIParser, AnthropicParser, VllmHttpParser, PassthroughParser)
"""The parsers that are used when the configuration names none."""

PARSERS = (*DEFAULT_PARSERS, SGLangHttpParser, VertexAIParser, VllmGrpcParser)

__all__ = [
    "DEFAULT_PARSERS",
    "PARSERS",
    "AnthropicParser",
    "ByPath",
    "OpenAIParser",
    "Parsed",
    "Parser",
    "PassthroughParser",
    "Reader",
    "SGLangHttpParser",
    "VertexAIParser",
    "VllmGrpcParser",
    "VllmHttpParser",
]
