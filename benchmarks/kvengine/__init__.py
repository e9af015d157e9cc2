"""Benchmarks of what the offload engine saves and costs."""
