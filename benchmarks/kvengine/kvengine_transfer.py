"""How the benchmarks turn kvengine on. In the environment of ``tests/vllm/environment.py``, or any that has vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import KVTransferConfig


def transfer(**settings: float) -> KVTransferConfig:
    """vLLM's setting for kvengine with ``settings`` of its own."""
    from vllm.config import KVTransferConfig

    return KVTransferConfig(
        kv_connector="KVEngineConnector",
        kv_connector_module_path="kvengine.connector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config=settings,
    )
