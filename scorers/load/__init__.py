"""Scorers and filters that prefer the endpoint with less to do."""
