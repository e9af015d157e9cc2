"""``tierwise demo``: one workload, three ways to choose an endpoint, and what each was worth."""
