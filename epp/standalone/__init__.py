"""A router without Kubernetes: a real Envoy with our configuration, and the picker beside it."""
