"""The charts and all keys of their values."""

from __future__ import annotations

from collections.abc import Sequence

from epp.lab.values.legacy_tree import LEGACY
from epp.lab.values.model_server_keys import MODEL_SERVER
from epp.lab.values.nodes import ANYTHING, Chart, Node, Section
from epp.lab.values.own_tree import OWN
from epp.lab.values.router_tree import ROUTER
from epp.lab.values.shared import PROVIDER

_CLASHES = ((tuple(ROUTER), tuple(LEGACY)),)
_PARTS: dict[str, Node] = {"global": ANYTHING, "tierwise-lib": ANYTHING, "inference-crds": ANYTHING}
"""What helm passes to the charts that a chart consists of."""
_BOTH: dict[str, Node] = {**LEGACY, **ROUTER, "provider": PROVIDER, **_PARTS, **OWN}


def tree_of(path: Sequence[str]) -> str | None:
    """Return which of the two trees ``path`` is in, by its first key; None for what both have."""
    head = path[0] if path else ""
    return "router" if head in ROUTER else "inferenceExtension" if head in LEGACY else None


CHARTS = (
    Chart("inferencepool", Section(_BOTH), _CLASHES),
    Chart("standalone", Section(_BOTH), _CLASHES),
    Chart("modelserver", Section(MODEL_SERVER)),
)
