"""``tierwise tune``: finds weights for a workload in the simulator, and says what to expect of them."""
