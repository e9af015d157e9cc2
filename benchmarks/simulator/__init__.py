"""Benchmarks of the simulator: how accurate and how fast it is, and what it predicts."""
