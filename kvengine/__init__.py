"""The offload engine: keeps vLLM's KV blocks in CPU memory.

The core does not depend on vLLM and imports no torch. Only ``kvengine.connector`` and the entry point in
``kvengine.plugin`` import vLLM.
"""

from kvengine.lifetime import clear, shutdown

__all__ = ["clear", "shutdown"]
