"""Simulated vLLM endpoints: one discrete model of an engine, driven in virtual time or behind an HTTP server.

This room is independent of how the picker hashes and indexes prompts: the two meet over HTTP only.
"""
