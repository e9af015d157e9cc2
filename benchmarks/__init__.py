"""Benchmarks, one question per file; each prints a table with unit, baseline and hardware, and JSON with ``--json``."""
