"""The flags of ``tierwise explain``."""

from __future__ import annotations

from epp.errors import ConfigError
from epp.explain.options import ExplainOptions
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.flag import Flag, grouped

EXPLAIN: tuple[Flag, ...] = grouped(
    "Flags",
    Flag("url", values.text, "url", "the picker's debug port (default http://127.0.0.1:9091)", "URL"),
    Flag("body", values.text, "body", "a request's body; none shows the endpoints", "FILE|-"),
    Flag("prompt", values.text, "prompt", "instead of a body: a completion of this text", "TEXT"),
    Flag("model", values.text, "model", "with --prompt: of this model (default: one that is served)", "NAME"),
    Flag("path", values.text, "path", "the request's path (default /v1/completions, or chat's where the body has "
         "messages)", "PATH"),
    Flag("header", values.header, "headers", "a header of the request; repeat it", "NAME:VALUE", repeated=True),
    Flag("subset", values.text, "subset", "the endpoints that the proxy allows, with commas", "HOST:PORT,..."),
    Flag("json", values.boolean, "json", "print the answer as JSON"),
)  # fmt: skip


def explain_options(given: Given) -> ExplainOptions:
    """The options of ``tierwise explain``. Raises: ConfigError for flags that exclude each other."""
    if given.get("body") and "prompt" in given:
        raise ConfigError("--body and --prompt exclude each other; give one of them")
    if "model" in given and "prompt" not in given:
        raise ConfigError("--model has no meaning without --prompt: a body names its model itself")
    return with_fields(ExplainOptions(headers=tuple(given.get("header", ()))), given, EXPLAIN)
