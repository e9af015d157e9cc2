"""``tierwise tune``: finds weights for a workload in the simulator, and estimates their gain."""
