"""``tierwise demo``: one workload, several ways to choose an endpoint, and what each of them gains."""
