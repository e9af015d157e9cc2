"""Scorers and filters that go by what an endpoint is: its labels, role, attributes and models."""
