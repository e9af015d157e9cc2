"""Packages that the base distribution does not bring: which extra does, in one sentence.

Nothing but the standard library is imported here.
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
"""By package; any other is in the extra of the command that wants it."""


def remedy(error: ModuleNotFoundError, extra: str) -> str | None:
    """What to install, for a command that needs ``extra``; None where a module of ours is missing, which is a fault."""
    package = (error.name or "").partition(".")[0]
    if not package or package in OURS:
        return None
    wanted = EXTRAS.get(package, extra)
    return f"the package {package} is missing; pip install '.[{wanted}]' in a clone of Tierwise"
