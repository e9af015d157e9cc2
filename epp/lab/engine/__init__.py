"""Simulated vLLM endpoints: one discrete model of an engine, driven in virtual time or behind an HTTP server.

This room does not know how the picker hashes or indexes prompts: the two meet over HTTP only.
"""
