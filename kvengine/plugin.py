"""vLLM's plugin entry point: registers the connector's name, so that no module path is needed."""

from __future__ import annotations

NAME = "KVEngineConnector"


def register() -> None:
    """Register the connector; imports neither the connector nor torch.

    vLLM calls it in each of its processes, possibly more than once.
    """
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "kvengine.connector", NAME)
