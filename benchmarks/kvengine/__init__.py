"""What the offload engine saves and costs."""
