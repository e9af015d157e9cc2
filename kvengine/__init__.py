"""The offload engine: keeps vLLM's KV blocks in CPU memory.

The core knows nothing of vLLM and imports no torch; ``kvengine.connector`` is the only part that imports vLLM.
"""
