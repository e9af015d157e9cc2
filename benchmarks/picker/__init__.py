"""Benchmarks of what the endpoint picker costs."""
