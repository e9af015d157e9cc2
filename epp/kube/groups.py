"""The API groups of InferencePools. The flags read them, so this file imports nothing."""

GROUP, OLD_GROUP = "inference.networking.k8s.io", "inference.networking.x-k8s.io"
VERSIONS = {GROUP: "v1", OLD_GROUP: "v1alpha2"}
"""The version that is read of each group, the newer group first."""
