"""The conversation with Envoy as a pure state machine: each pick is ended exactly once."""
