"""Listening ports: binding them, TLS, certificates, and the connections that fail there."""
