"""Readers of request bodies, one file per family of APIs; ``PARSERS`` lists them."""

from epp.parsers.base import Parsed, Parser
from epp.parsers.openai import OpenAIParser

PARSERS = (OpenAIParser,)

__all__ = ["PARSERS", "OpenAIParser", "Parsed", "Parser"]
