"""Load, echo servers and statistics that several benchmarks share."""
