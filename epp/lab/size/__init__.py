"""``tierwise size``: what a fleet's memory tiers hold, and whether a workload fits. Arithmetic, no measurement."""
