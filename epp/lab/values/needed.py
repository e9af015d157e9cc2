"""What the charts' templates refuse about values that their schemas accept: labels that are missing, and a small cache.

The templates say the same: ``tierwise-lib/templates/_pool_values.tpl`` and ``modelserver/templates/_sizes.tpl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from epp.lab.values.check import Fault, Finding
from epp.lab.values.convert import Tree, tree_in
from epp.lab.values.nodes import Chart
from epp.lab.values.paths import get

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
          "Ti": 1 << 40}  # fmt: skip
SMALLEST_CACHE = 1 << 30
"""Bytes of ``cache.cpu``: a smaller number is taken for one whose unit was forgotten."""


def refused_later(chart: Chart, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yield what ``chart`` refuses although the keys and types are right; ``values`` are those that its schema accepts.

    They are all values of a release: what another file would add counts as missing.
    """
    if chart.clashes:  # a chart of a picker, whose two trees exclude each other
        yield from _labels(values)
    else:
        yield from _cache(values)


def _labels(values: Mapping[str, object]) -> Iterator[Finding]:
    if tree_in(values) is Tree.LEGACY:
        path = "inferencePool.modelServers.matchLabels"
        create, selector = "endpointsServer.createInferencePool", "endpointsServer.endpointSelector"
        top = "inferenceExtension"
    else:
        path = "router.modelServers.matchLabels"
        create, selector, top = "inferencePool.create", "modelServers.selector", "router"
    selected = get(values, f"{top}.{create}") is False and get(values, f"{top}.{selector}")
    if not (get(values, path) or selected):
        message = (
            "it is missing, so no pod would be an endpoint; add the labels of your model servers' pods, for example "
            f"--set-string '{path}.llm-d\\.ai/guide=NAME'"
        )
        yield Finding(path, message, Fault.WRONG)


def _cache(values: Mapping[str, object]) -> Iterator[Finding]:
    given = get(values, "cache.cpu")
    if given is None or get(values, "cache.connector") == "none":
        return
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(given)).groups()  # type: ignore[union-attr] # its pattern
    if float(number) * _UNITS[unit] < SMALLEST_CACHE:
        message = f"{given} is below 1Gi; write it with its unit, such as {number}Gi (Mi, Gi, Ti, M, G or T)"
        yield Finding("cache.cpu", message, Fault.WRONG)
