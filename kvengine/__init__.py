"""The offload engine: keeps vLLM's KV blocks in CPU memory. Not built yet; see CHANGELOG.md."""
