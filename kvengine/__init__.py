"""The offload engine: keeps vLLM's KV blocks in CPU memory.

The core knows nothing of vLLM and imports no torch; ``kvengine.connector`` and
the entry point in ``kvengine.plugin`` are the only parts that import vLLM.
"""

from kvengine.lifetime import clear, shutdown

__all__ = ["clear", "shutdown"]
