"""The setting with which benchmarks turn kvengine on, in any environment with vLLM (``tests/vllm/environment.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import KVTransferConfig


def transfer(**settings: float) -> KVTransferConfig:
    """Return vLLM's ``kv_transfer_config`` for kvengine with ``settings``."""
    from vllm.config import KVTransferConfig

    return KVTransferConfig(
        kv_connector="KVEngineConnector",
        kv_connector_module_path="kvengine.connector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config=settings,
    )
