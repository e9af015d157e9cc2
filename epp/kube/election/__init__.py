"""Which picker leads, by a Lease of the Kubernetes API: a pure machine, and the shell that reads and writes for it."""
