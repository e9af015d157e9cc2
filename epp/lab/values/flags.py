"""The flags of ``tierwise values``; where helm has a name, the flag has the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epp.flags import values
from epp.flags.flag import Flag, grouped
from epp.lab.values.charts import CHARTS
from epp.lab.values.options import ValuesOptions

VALUES: tuple[Flag, ...] = (
    *grouped(
        "What is read, as helm reads it",
        Flag("f", values.text, "files", "a values file; the next one wins over it; - is standard input", "FILE",
             repeated=True),
        Flag("values", values.text, "files", "the same", "FILE", repeated=True),
        Flag("set", values.text, "typed", "values by their paths, which win over all files", "KEY=VALUE",
             repeated=True),
        Flag("set-string", values.text, "texts", "the same, and every value is text", "KEY=VALUE", repeated=True),
    ),
    *grouped(
        "What is made of it",
        Flag("to", values.word("router", "inferenceExtension"), "to",
             "the tree to write (default: the other one than was read)", "router|inferenceExtension"),
        Flag("chart", values.word(*(chart.name for chart in CHARTS)), "chart",
             "the chart that the values are for (default inferencepool)", "NAME"),
        Flag("check", values.boolean, "check", "write nothing: only say what is wrong, and what upstream ignores"),
    ),
)  # fmt: skip


def values_options(given: Mapping[str, Any]) -> ValuesOptions:
    """Return the options. Raises: ConfigError for one that is refused."""
    files = (*given.get("f", ()), *given.get("values", ()))
    if name := given.get("name"):
        files = (name, *files)
    return ValuesOptions(
        files=files,
        typed=tuple(given.get("set", ())),
        texts=tuple(given.get("set-string", ())),
        chart=given.get("chart", "inferencepool"),
        to=given.get("to"),
        check=given.get("check", False),
    )
