"""vLLM's plugin entry point: makes the connector's name known, so that no module path is needed."""

from __future__ import annotations

NAME = "KVEngineConnector"


def register() -> None:
    """Called by vLLM in each of its processes, possibly more than once. Imports neither the connector nor torch."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "kvengine.connector", NAME)
