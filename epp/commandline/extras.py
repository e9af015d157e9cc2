"""Names the extra that installs a missing package, in one sentence.

This module imports only the standard library.
"""

from __future__ import annotations

OURS = frozenset({"epp", "scorers", "kvengine"})

EXTRAS = {
    "cel": "cel",
    "envoy": "standalone",
    "envoy_data_plane": "standalone",
    "jinja2": "precise",
    "kubernetes_asyncio": "k8s",
    "matplotlib": "bench",
    "numpy": "kvengine",
    "opentelemetry": "otel",
    "tokenizers": "precise",
    "zmq": "precise",
}
"""Extras by package; any other package is in the extra of the command that needs it."""


def remedy(error: ModuleNotFoundError, extra: str) -> str | None:
    """Return what to install, for a command that needs ``extra``; None if a module of ours is missing, a defect."""
    package = (error.name or "").partition(".")[0]
    if not package or package in OURS:
        return None
    wanted = EXTRAS.get(package, extra)
    return f"the package {package} is missing; pip install '.[{wanted}]' in a clone of Tierwise"
